// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/json_value.h"
#include "tests/tools/commands/search/made_report.h"
#include "tools/commands/search/search_choice.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// F32 in chunks of 1024: 1000 + 24 of tail; 100, 28 of alignment, 800 and a
// tail of 96; 1500 alone, rounded by 36.
SearchReport Made() {
  SearchReport report = MadeReport({{"a", {1000}, DType::kF32},
                                    {"b", {100}, DType::kF32},
                                    {"c", {800}, DType::kF32},
                                    {"d", {1500}, DType::kF32}});
  std::vector<std::string> notes;
  report.choice =
      MakeChoice(report, ChoicePick::kChunk, KiB(4), &notes).value();
  return report;
}

TEST(SearchExplainTest, TellsTheCausesAndTheWorstChunks) {
  const SearchReport report = Made();
  const std::vector<std::string> lines =
      Lines(ExplainText(report, *report.choice, 2));
  EXPECT_THAT(lines[1], HasSubstr("of --chunk: 736 B = tails 480 B (65.22 %) + "
                                  "alignment 112 B (15.22 %) + oversize"));
  EXPECT_THAT(lines[2], HasSubstr("rounding 144 B (19.57 %)"));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_THAT(lines[4], MatchesRegex(" +1 +4 KiB +496 B +384 B +112 B +b, "
                                     "\\+1"));
  EXPECT_THAT(lines[5], MatchesRegex(" +2 +6 KiB +144 B +144 B +0 B +d"));
}

TEST(SearchExplainTest, ListsEveryChunkForPrograms) {
  const SearchReport report = Made();
  const JsonValue json = ExplainJson(report, *report.choice);
  EXPECT_EQ(json["pick"], "chunk");
  EXPECT_EQ(json["waste_bytes"], 736);
  EXPECT_EQ(json["tail_bytes"], 480);
  EXPECT_EQ(json["alignment_bytes"], 112);
  EXPECT_EQ(json["rounding_bytes"], 144);
  ASSERT_EQ(json["chunks"].size(), 3u);
  EXPECT_EQ(json["chunks"][1].Dump(),
            R"({"dtype":"F32","trainable":true,"chunk_elements":1024,)"
            R"("oversize":false,"waste_elements":124,"tail_elements":96,)"
            R"("alignment_elements":28,"rounding_elements":0,)"
            R"("parameters":["b","c"]})");
  EXPECT_EQ(json["chunks"][2]["oversize"], true);
}

TEST(SearchExplainTest, KeepsTheEndOfALongName) {
  SearchReport report =
      MadeReport({{"very.long." + std::string(50, 'x') + "\x1b.weight",
                   {1000},
                   DType::kF32}});
  std::vector<std::string> notes;
  report.choice =
      MakeChoice(report, ChoicePick::kChunk, KiB(4), &notes).value();
  const std::string text = ExplainText(report, *report.choice, 5);
  EXPECT_THAT(text, HasSubstr("  ...xxxx"));
  EXPECT_THAT(text, HasSubstr("x\\x1b.weight\n"));
}

TEST(SearchExplainTest, HasNoRowsWhereNothingIsWasted) {
  SearchReport report = MadeReport({{"a", {1024}, DType::kF32}});
  std::vector<std::string> notes;
  report.choice =
      MakeChoice(report, ChoicePick::kChunk, KiB(4), &notes).value();
  EXPECT_EQ(Lines(ExplainText(report, *report.choice, 5)).size(), 2u);
}

}  // namespace
}  // namespace castor
