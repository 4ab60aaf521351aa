// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/sub_tracks.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SubTracksTest, TakesTheLowestTrackThatIsFree) {
  EXPECT_THAT(AssignSubTracks({}), IsEmpty());
  const std::vector<Interval> intervals = {
      {0, 10}, {2, 4}, {3, 20}, {4, 5}, {10, 11}, {10, 10}, {10, 30}, {12, 13}};
  EXPECT_THAT(AssignSubTracks(intervals), ElementsAre(0, 1, 2, 1, 0, 1, 1, 0));
}

TEST(SubTracksTest, OnOneTrackNothingOverlapsAndNoTrackIsWasted) {
  std::mt19937_64 random(TestSeed(32));
  for (int round = 0; round < 1'000; ++round) {
    std::vector<Interval> intervals(random() % 30);
    for (Interval& interval : intervals) {
      interval.begin = static_cast<int64_t>(random() % 50);
      interval.end = interval.begin + static_cast<int64_t>(random() % 10);
    }
    std::sort(
        intervals.begin(), intervals.end(),
        [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    const std::vector<int> tracks = AssignSubTracks(intervals);
    int most = -1;
    std::vector<int64_t> ends(intervals.size() + 1, -1);
    for (size_t i = 0; i < intervals.size(); ++i) {
      int64_t& end = ends[static_cast<size_t>(tracks[i])];
      ASSERT_LE(end, intervals[i].begin);
      end = intervals[i].end;
      most = std::max(most, tracks[i]);
    }
    int deepest = -1;
    for (int64_t at = 0; at < 60; ++at) {
      int depth = -1;
      for (const Interval& interval : intervals) {
        if (interval.begin <= at && at < interval.end) ++depth;
      }
      deepest = std::max(deepest, depth);
    }
    // Empty intervals may need a track although they hold no point.
    ASSERT_GE(most, deepest);
    const bool has_empty =
        std::any_of(intervals.begin(), intervals.end(),
                    [](const Interval& i) { return i.length() == 0; });
    if (!has_empty) {
      ASSERT_EQ(most, deepest);
    }
  }
}

}  // namespace
}  // namespace castor
