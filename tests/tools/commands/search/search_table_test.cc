// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/commands/search/made_report.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> TableOf(const SearchReport& report, size_t rows) {
  return Lines(CandidateTable(report, 0, rows, Emphasis::kNone));
}

TEST(SearchTableTest, ShowsEveryRowWhereThereIsRoom) {
  const SearchReport report = MadeReport(Irregular());
  EXPECT_EQ(TableOf(report, 1000).size(),
            report.result.groups[0].candidates.size() + 1);
}

TEST(SearchTableTest, KeepsBestAndRecommendedWhereThereIsLittle) {
  SearchReport report = MadeReport(Irregular());
  GroupSearchResult& group = report.result.groups[0];
  group.recommended = group.candidates[1];
  group.best = group.candidates[group.candidates.size() - 2];
  const std::vector<std::string> lines = TableOf(report, 2);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[1], StartsWith("> uniform "));
  EXPECT_THAT(lines[1], HasSubstr("recommended"));
  EXPECT_THAT(lines[2], HasSubstr("best"));
  EXPECT_THAT(lines[3], HasSubstr("more: --plain"));
}

TEST(SearchTableTest, SpreadsWhatItShowsOfTheRest) {
  const SearchReport report = MadeReport(Irregular());
  const size_t count = report.result.groups[0].candidates.size();
  ASSERT_GT(count, 16u);
  for (size_t rows = 4; rows < count; ++rows) {
    EXPECT_EQ(TableOf(report, rows).size(), rows + 2);
  }
}

TEST(SearchTableTest, NotesTheBestOfAMode) {
  SearchReport report = MadeReport(Irregular());
  GroupSearchResult& group = report.result.groups[0];
  ModeResult mode;
  mode.mode = SearchMode::kLayer;
  mode.best = group.candidates.back();
  mode.best.mode = mode.mode;
  mode.best.waste += Elements(1);
  group.candidates.push_back(mode.best);
  group.modes.push_back(mode);
  EXPECT_THAT(TableOf(report, 5), Contains(HasSubstr("best layer")));
}

TEST(SearchTableTest, SaysWhereOneChunkHoldsTheGroup) {
  EXPECT_THAT(TableOf(MadeReport({{"a", {1000}, DType::kF32}}, KiB(64)), 5),
              Contains(HasSubstr("best, recommended, whole group")));
}

TEST(SearchTableTest, ComparesWithOtherChoices) {
  SearchReport report = MadeReport(Irregular());
  const ChunkSizeCandidate other = report.result.groups[0].candidates[0];
  RuleReport rule;
  rule.rule.rule = CompatibilityRule::kElixir;
  rule.rule.claimed_fraction = 0.07;
  report.rules = {rule};
  // A rule that picks nothing has no row.
  EXPECT_THAT(TableOf(report, 3), Not(Contains(HasSubstr("elixir"))));
  report.rules[0].in_castor = {other};
  report.choice.emplace(SearchChoice{
      ChoicePick::kChunk, {other}, ChunkLayout(1, Elements(64), {}, {}, {})});
  EXPECT_THAT(
      TableOf(report, 3),
      AllOf(Contains(AllOf(StartsWith("  --chunk "), HasSubstr("as given"))),
            Contains(AllOf(StartsWith("  elixir "),
                           HasSubstr("its rule claims 7.00 %")))));
}

TEST(SearchTableTest, HasTimesWhereAMachineIsKnown) {
  SearchReport report = MadeReport(Irregular());
  EXPECT_THAT(TableOf(report, 3)[0], Not(HasSubstr("time")));
  report.machine.emplace();
  report.machine->host_to_device = {1'000'000'000, 0};
  const std::vector<std::string> lines = TableOf(report, 3);
  EXPECT_THAT(lines[0], HasSubstr("  time  note"));
  EXPECT_THAT(lines[1], HasSubstr(" ms"));
}

}  // namespace
}  // namespace castor
