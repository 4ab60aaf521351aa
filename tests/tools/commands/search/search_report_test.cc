// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_report.h"

#include <gtest/gtest.h>

#include "tests/tools/commands/search/made_report.h"

namespace castor {
namespace {

TEST(SearchReportTest, NamesGroups) {
  const SearchReport report =
      MadeReport({{"a", {10}, DType::kBF16},
                  {"b", {10}, DType::kF32, /*trainable=*/false}});
  EXPECT_EQ(GroupName(report.result.groups[0]), "BF16");
  EXPECT_EQ(GroupName(report.result.groups[1]), "F32 frozen");
}

TEST(SearchReportTest, TellsChoicesApart) {
  ChunkSizeCandidate one;
  one.chunk_size = Elements(128);
  ChunkSizeCandidate other = one;
  other.chunks = 4;
  EXPECT_TRUE(SameChoice(one, other));
  other.mode = SearchMode::kLayer;
  EXPECT_FALSE(SameChoice(one, other));
  other = one;
  other.chunk_size = Elements(256);
  EXPECT_FALSE(SameChoice(one, other));
}

TEST(SearchReportTest, FindsTheModeOfTheBest) {
  GroupSearchResult group;
  group.modes.resize(2);
  group.modes[1].mode = SearchMode::kLayer;
  group.best.mode = SearchMode::kLayer;
  EXPECT_EQ(&BestMode(group), &group.modes[1]);
}

TEST(SearchReportTest, AddsUpModelAndChoicesInBytes) {
  const SearchReport report = MadeReport(
      {{"a", {1000}, DType::kF32}, {"b", {500}, DType::kBF16}}, KiB(64));
  const ModelTotals model = TotalsOf(report.model);
  EXPECT_EQ(model.elements, 1500);
  EXPECT_EQ(model.bytes, Bytes(5000));
  // Both groups are below the minimum: a chunk each, rounded up to 128.
  const ChoiceTotals best = TotalsOf(report.result, &GroupSearchResult::best);
  EXPECT_EQ(best.chunks, 2);
  EXPECT_EQ(best.allocated, Bytes(1024 * 4 + 512 * 2));
  EXPECT_EQ(best.waste, Bytes(24 * 4 + 12 * 2));
  EXPECT_EQ(best.gathered, 3 * best.allocated);
}

}  // namespace
}  // namespace castor
