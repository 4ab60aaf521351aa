// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/text/text_forms.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace castor {
namespace {

TEST(TextFormsTest, GroupsDigitsByThree) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(-123456), "-123,456");
  EXPECT_EQ(Grouped(INT64_MAX), "9,223,372,036,854,775,807");
}

TEST(TextFormsTest, CountsThings) {
  EXPECT_EQ(Plural(1, "chunk"), "1 chunk");
  EXPECT_EQ(Plural(0, "chunk"), "0 chunks");
  EXPECT_EQ(Plural(1024, "chunk"), "1,024 chunks");
}

TEST(TextFormsTest, NeverRoundsAShareToNothing) {
  EXPECT_EQ(Percent(0), "0.00 %");
  EXPECT_EQ(Percent(0.00004), "< 0.01 %");
  EXPECT_EQ(Percent(0.0513), "5.13 %");
  EXPECT_EQ(Percent(1), "100.00 %");
}

TEST(TextFormsTest, GivesDurationsThreeDigits) {
  EXPECT_EQ(FormatDuration(0), "0 ns");
  EXPECT_EQ(FormatDuration(999), "999 ns");
  EXPECT_EQ(FormatDuration(1'000), "1.00 us");
  EXPECT_EQ(FormatDuration(12'345), "12.3 us");
  EXPECT_EQ(FormatDuration(99'960), "100 us");
  EXPECT_EQ(FormatDuration(999'400), "999 us");
  EXPECT_EQ(FormatDuration(999'600), "1.00 ms");
  EXPECT_EQ(FormatDuration(9'994'000), "9.99 ms");
  EXPECT_EQ(FormatDuration(1'234'567'890), "1.23 s");
  EXPECT_EQ(FormatDuration(7'200'000'000'000), "7200 s");
}

TEST(TextFormsTest, JoinsWords) {
  EXPECT_EQ(JoinedWithAnd({}), "");
  EXPECT_EQ(JoinedWithAnd(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(JoinedWithAnd(std::vector<std::string>{"a", "b"}), "a and b");
  EXPECT_EQ(JoinedWithAnd(std::vector<std::string>{"a", "b", "c"}),
            "a, b and c");
}

TEST(TextFormsTest, MakesNamesHarmless) {
  EXPECT_EQ(Shown("m\x1b[2J"), "m\\x1b[2J");
  EXPECT_EQ(ShellWord("a/b-1.json"), "a/b-1.json");
  EXPECT_EQ(ShellWord("my model"), "'my model'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("a\x1b[2J"), "MODEL");
}

TEST(TextFormsTest, DrawsAnythingAtAllAndNothingBlank) {
  const std::vector<double> shares = {-1, 0, 1e-9, 0.5, 0.87, 0.88, 1, 2};
  EXPECT_EQ(DrawStrip(shares, StripInk::kAscii), "  .+#@@@");
  EXPECT_EQ(DrawStrip({}, StripInk::kBlocks), "");
  EXPECT_EQ(DrawStrip(std::vector<double>{0, 1}, StripInk::kBlocks), " \u2588");
}

TEST(TextFormsTest, BreaksAParagraphBetweenWords) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "word ";
  const std::string page = Paragraph("Label", text + std::string(200, 'x'));
  std::istringstream lines(page);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line.substr(0, 16), "Label       word");
  EXPECT_LE(line.size(), kPageColumns);
  int count = 1;
  std::string last;
  for (; std::getline(lines, line); ++count) {
    last = line;
    EXPECT_EQ(line.substr(0, 12), std::string(12, ' '));
    EXPECT_NE(line.back(), ' ');
    if (line.find('x') == line.npos) {
      EXPECT_LE(line.size(), kPageColumns);
    }
  }
  EXPECT_EQ(count, 5);  // 17 words of 5 columns on a line
  EXPECT_EQ(last.size(), 212u);
}

}  // namespace
}  // namespace castor
