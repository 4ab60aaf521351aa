// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/commands/search/made_report.h"
#include "tools/cli/text_forms.h"
#include "tools/cli/text_table.h"

namespace castor {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

void ExpectOneScreen(const std::string& page) {
  const std::vector<std::string> lines = Lines(page);
  EXPECT_LE(lines.size(), kPageLines) << page;
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), kPageColumns) << line;
  }
}

TEST(SearchTextTest, FitsAScreenAndSaysWhatItLeavesOut) {
  const SearchReport report = MadeReport(Irregular());
  const auto& group = report.result.groups[0];
  ASSERT_GT(group.candidates.size(), 10u);
  const std::string text = SearchText(report, Emphasis::kNone);
  ExpectOneScreen(text);
  EXPECT_THAT(text, ContainsRegex(" best(, recommended)?(, fewest chunks)?\n"));
  EXPECT_THAT(text, HasSubstr("fewest chunks"));
  EXPECT_THAT(text, HasSubstr("least gathered"));
  EXPECT_THAT(text, HasSubstr("... and " +
                              std::to_string(group.candidates.size() - 10) +
                              " more: --plain or --json"));
  EXPECT_THAT(text,
              HasSubstr("Proved      uniform: none of the 127 allowed sizes"));
  EXPECT_THAT(text, HasSubstr("castor search 'my model.tsv' --device-budget"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(SearchText(report, Emphasis::kTerminal), HasSubstr("\x1b[1m> "));
}

TEST(SearchTextTest, ShowsEachGroup) {
  std::vector<ParamSpec> params = Irregular();
  for (const ParamSpec& spec : Irregular()) {
    params.push_back({spec.name + "b", spec.shape, DType::kBF16});
  }
  const SearchReport report = MadeReport(params);
  const std::string text = SearchText(report, Emphasis::kNone);
  ExpectOneScreen(text);
  EXPECT_THAT(text, HasSubstr("Group       F32: 60 tensors"));
  EXPECT_THAT(text, HasSubstr("Group       BF16: 60 tensors"));
  EXPECT_THAT(text, HasSubstr("Proved      nothing that is allowed wastes "
                              "less than uniform "));
  EXPECT_THAT(text, HasSubstr("All groups  "));
}

TEST(SearchTextTest, CountsTheShareOfOversizeParameters) {
  // 64 KiB hold 16384 F32: the second has a chunk of its own.
  const SearchReport report = MadeReport(
      {{"a", {16384}, DType::kF32}, {"b", {49152}, DType::kF32}}, KiB(64));
  EXPECT_THAT(SearchText(report, Emphasis::kNone),
              HasSubstr("chunk of its own, "
                        "75.00 % of the bytes\n"));
}

TEST(SearchTextTest, SaysWhereNothingIsToBePacked) {
  EXPECT_THAT(SearchText(MadeReport({}), Emphasis::kNone),
              HasSubstr("nothing to pack"));
}

TEST(SearchTextTest, KeepsATerminalSafeFromNames) {
  SearchReport report = MadeReport(Irregular());
  report.model.name = "m\x1b[2J";
  report.model.source = "s\x1b[2J";
  report.model_argument = "a\x1b[2J";
  report.model.dropped = {{"d\x1b[2J", "integers"}};
  const std::string text = SearchText(report, Emphasis::kNone);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("m\\x1b[2J: 60 tensors"));
  EXPECT_THAT(text, HasSubstr("castor search MODEL --device-budget"));
}

TEST(SearchTextTest, ListsWhatWasLeftOutByReason) {
  SearchReport report = MadeReport(Irregular());
  report.model.dropped = {{"h.0.attn.bias", "attention mask"},
                          {"step", "integers"},
                          {"h.1.attn.bias", "attention mask"}};
  const std::string text = SearchText(report, Emphasis::kNone);
  EXPECT_THAT(
      text,
      HasSubstr("Left out    2 tensors (attention mask): \"h.0.attn.bias\", "
                "...\nLeft out    1 tensor (integers): \"step\"\n"));
}

}  // namespace
}  // namespace castor
