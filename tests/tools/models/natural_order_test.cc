// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tools/models/model_list.h"

namespace castor {
namespace {

TEST(NaturalOrderTest, ComparesRunsOfDigitsAsNumbers) {
  EXPECT_TRUE(NaturalLess("layers.2.w", "layers.10.w"));
  EXPECT_FALSE(NaturalLess("layers.10.w", "layers.2.w"));
  EXPECT_TRUE(NaturalLess("layers.2.b", "layers.2.w"));
  EXPECT_TRUE(NaturalLess("h.9.mlp", "h.10.attn"));
  EXPECT_TRUE(NaturalLess("a", "a1"));
  EXPECT_TRUE(NaturalLess("a1", "ab"));
  EXPECT_FALSE(NaturalLess("same.1", "same.1"));
  // Longer than any integer type.
  EXPECT_TRUE(
      NaturalLess("a" + std::string(50, '9'), "a1" + std::string(50, '0')));
}

TEST(NaturalOrderTest, TellsApartWhatDiffersInLeadingZerosOnly) {
  EXPECT_NE(NaturalLess("a01", "a1"), NaturalLess("a1", "a01"));
  EXPECT_TRUE(NaturalLess("a1.x", "a01.y"));
  EXPECT_TRUE(NaturalLess("a0", "a00"));
  EXPECT_TRUE(NaturalLess("a00", "a1"));
}

TEST(NaturalOrderTest, IsAStrictTotalOrder) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<std::string> names;
  for (int i = 0; i < 120; ++i) {
    std::string name;
    for (size_t length = random() % 7; name.size() < length;) {
      name += "019a.\xc3"[random() % 6];
    }
    names.push_back(name);
  }
  for (const std::string& a : names) {
    for (const std::string& b : names) {
      ASSERT_EQ(NaturalLess(a, b) || NaturalLess(b, a), a != b)
          << a << " and " << b;
      ASSERT_FALSE(NaturalLess(a, b) && NaturalLess(b, a)) << a << " " << b;
      for (const std::string& c : names) {
        if (NaturalLess(a, b) && NaturalLess(b, c)) {
          ASSERT_TRUE(NaturalLess(a, c)) << a << " " << b << " " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace castor
