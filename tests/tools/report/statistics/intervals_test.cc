// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/statistics/intervals.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(IntervalsTest, UnionJoinsWhatOverlapsOrTouches) {
  EXPECT_THAT(Union({}), IsEmpty());
  EXPECT_THAT(Union({{3, 3}}), IsEmpty());
  EXPECT_THAT(Union({{5, 7}, {1, 2}, {2, 3}, {6, 9}, {20, 30}, {22, 25}}),
              ElementsAre(Interval{1, 3}, Interval{5, 9}, Interval{20, 30}));
}

TEST(IntervalsTest, IntersectionKeepsWhatBothHold) {
  const IntervalSet a = {{0, 10}, {20, 30}, {40, 50}};
  const IntervalSet b = {{5, 22}, {25, 26}, {28, 45}};
  EXPECT_THAT(Intersection(a, b),
              ElementsAre(Interval{5, 10}, Interval{20, 22}, Interval{25, 26},
                          Interval{28, 30}, Interval{40, 45}));
  EXPECT_THAT(Intersection(a, {}), IsEmpty());
  EXPECT_THAT(Intersection({{0, 5}}, {{5, 9}}), IsEmpty());
}

TEST(IntervalsTest, AgreesWithCountingEveryPoint) {
  std::mt19937_64 random(TestSeed(30));
  for (int round = 0; round < 2'000; ++round) {
    const auto make = [&] {
      std::vector<Interval> intervals;
      for (size_t i = 0; i < random() % 8; ++i) {
        const auto begin = static_cast<int64_t>(random() % 40);
        intervals.push_back(
            {begin, begin + static_cast<int64_t>(random() % 8)});
      }
      return intervals;
    };
    const auto holds = [](const std::vector<Interval>& intervals, int64_t at) {
      return std::any_of(
          intervals.begin(), intervals.end(),
          [at](const Interval& i) { return i.begin <= at && at < i.end; });
    };
    const std::vector<Interval> a = make();
    const std::vector<Interval> b = make();
    const IntervalSet both = Intersection(Union(a), Union(b));
    int64_t in_a = 0;
    int64_t in_both = 0;
    for (int64_t at = 0; at < 50; ++at) {
      in_a += holds(a, at) ? 1 : 0;
      in_both += holds(a, at) && holds(b, at) ? 1 : 0;
      ASSERT_EQ(holds(both, at), holds(a, at) && holds(b, at));
    }
    ASSERT_EQ(Length(Union(a)), in_a);
    ASSERT_EQ(Length(both), in_both);

    // Whatever the parts, they hold the set's length inside the window.
    const Interval window = {5, 5 + 1 + static_cast<int64_t>(random() % 40)};
    std::vector<double> parts(1 + random() % 9);
    AddShares(Union(a), window, 1, parts);
    double sum = 0;
    for (const double part : parts) {
      ASSERT_LE(part, 1 + 1e-9);
      sum += part;
    }
    const double width = static_cast<double>(window.length()) /
                         static_cast<double>(parts.size());
    const auto inside =
        static_cast<double>(Length(Intersection(Union(a), {window})));
    ASSERT_THAT(sum * width, DoubleNear(inside, 1e-6));
  }
}

TEST(IntervalsTest, SharesFallIntoTheirParts) {
  double parts[4] = {0, 0, 0, 1};
  const IntervalSet set = {{-50, 10}, {25, 75}, {90, 1000}};
  AddShares(set, {0, 100}, 2, parts);
  EXPECT_THAT(
      parts,
      ElementsAre(DoubleNear(2 * 0.4, 1e-12), DoubleNear(2 * 1.0, 1e-12),
                  DoubleNear(2 * 1.0, 1e-12), DoubleNear(1 + 2 * 0.4, 1e-12)));
}

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
