// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/glob.h"

#include <fnmatch.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

bool Matches(std::string_view pattern, std::string_view text) {
  return Glob(pattern).Matches(text);
}

TEST(GlobTest, MatchesWholeNames) {
  EXPECT_TRUE(Matches("", ""));
  EXPECT_FALSE(Matches("", "a"));
  EXPECT_TRUE(Matches("*", ""));
  EXPECT_TRUE(Matches("*.weight", "layers.0.mlp.weight"));
  EXPECT_FALSE(Matches("*.weight", "layers.0.mlp.weight_scale"));
  EXPECT_TRUE(Matches("layers.?.*", "layers.3.w"));
  EXPECT_FALSE(Matches("layers.?.*", "layers.13.w"));
  EXPECT_TRUE(Matches("h.[0-3].w", "h.2.w"));
  EXPECT_FALSE(Matches("h.[!0-3].w", "h.2.w"));
  EXPECT_TRUE(Matches("a*b*c", "aXbXbXc"));
  EXPECT_FALSE(Matches("a*b*c", "aXbXbX"));
}

TEST(GlobTest, KnowsTheOddOnes) {
  EXPECT_TRUE(Matches("[]]", "]"));
  EXPECT_TRUE(Matches("[!]]", "a"));
  EXPECT_TRUE(Matches("[a-]", "-"));
  EXPECT_TRUE(Matches("[", "["));
  EXPECT_TRUE(Matches("a[b", "a[b"));
  EXPECT_TRUE(Matches("[]", "[]"));
  EXPECT_FALSE(Matches("[z-a]", "m"));
  EXPECT_TRUE(Matches("\\*", "*"));
  EXPECT_FALSE(Matches("\\*", "a"));
  EXPECT_FALSE(Matches("a\\", "a"));
  EXPECT_FALSE(Matches("a\\", "a\\"));
  EXPECT_TRUE(Matches("[\\]]", "]"));
  EXPECT_TRUE(Matches("[\x80-\xff]", "\xe2"));
  EXPECT_TRUE(Matches("?", std::string_view("\0", 1)));
}

// The C library's own, on what pieces form by chance. Only a [ without its ] is
// left out: what glibc makes of that depends on the text.
TEST(GlobTest, AgreesWithFnmatch) {
  const uint64_t seed = TestSeed(20240611);
  std::mt19937_64 random(seed);
  const std::vector<std::string> pattern_pieces = {
      "a",       "b",    "x",     "*",     "*",    "?",      "-",
      "]",       "!",    "^",     "\\a",   "\\[",  "\\*",    "[ab]",
      "[!a]",    "[^b]", "[a-x]", "[x-a]", "[]a]", "[!]-b]", "[\\]a]",
      "[a\\-x]", "[-a]", "[a-]",  "[[]",   "[!!]", "[--a]",  "[!-\\]]"};
  const std::vector<std::string> letters = {"a", "b", "x",  "[", "]",
                                            "-", "!", "\\", "^"};
  const auto some = [&](const std::vector<std::string>& pieces, size_t most) {
    std::string text;
    for (size_t n = random() % (most + 1); n > 0; --n) {
      text += pieces[random() % pieces.size()];
    }
    return text;
  };
  int matches = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::string pattern = some(pattern_pieces, 7);
    const std::string text = some(letters, 6);
    const bool expected = fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
    ASSERT_EQ(Matches(pattern, text), expected)
        << "pattern <" << pattern << "> text <" << text << ">";
    matches += expected ? 1 : 0;
  }
  EXPECT_GT(matches, 2000);
}

// Matchers that try every length for every star need 2^30 steps here.
TEST(GlobTest, TakesNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 30; ++i) pattern += "*a";
  EXPECT_FALSE(Matches(pattern + "*b", std::string(10'000, 'a')));
  EXPECT_TRUE(Matches(std::string(10'000, '*'), std::string(10'000, 'a')));
  EXPECT_TRUE(Matches(std::string(10'000, '['), std::string(10'000, '[')));
}

}  // namespace
}  // namespace castor
