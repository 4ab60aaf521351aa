// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/lease_departures.h"

#include <cstdint>
#include <vector>

#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "placement/step_trace.h"

namespace castor {
namespace {

using Departure = LeaseDepartures::Departure;

// An arena of ten places.
class LeaseDeparturesTest : public testing::Test {
 protected:
  // Leases that leave so many places at each of three moments.
  static std::vector<LeaseChange> Leaving(int64_t a, int64_t b, int64_t c) {
    const LeaseLevel levels[] = {
        {KiB(10 - a), KiB(10 - a)},
        {KiB(10 - b), KiB(10 - b)},
        {KiB(10 - c), KiB(10 - c)},
    };
    return LeaseChanges(levels);
  }

  LeaseDepartures departures_{KiB(10), KiB(1)};
};

TEST_F(LeaseDeparturesTest, WithoutAPlanThereIsNothingToDepartFrom) {
  EXPECT_EQ(departures_.After(Leaving(0, 1, 2)), Departure::kNone);
  departures_.Adopt(std::vector<int64_t>{5, 5, 5}, {5, 5, 5}, true);
  departures_.Adopt({}, {}, true);
  EXPECT_EQ(departures_.After(Leaving(0, 1, 2)), Departure::kNone);
}

TEST_F(LeaseDeparturesTest, FewerPlacesAtAnyMomentDepartAtOnce) {
  departures_.Adopt(std::vector<int64_t>{8, 2, 8}, {8, 2, 8}, true);
  EXPECT_EQ(departures_.After(Leaving(8, 2, 8)), Departure::kNone);
  EXPECT_EQ(departures_.After(Leaving(7, 2, 8)), Departure::kFewer);
  EXPECT_EQ(departures_.After(Leaving(9, 1, 9)), Departure::kFewer);
  EXPECT_EQ(departures_.After(Leaving(8, 2, 0)), Departure::kFewer);
  // As often as they do.
  EXPECT_EQ(departures_.After(Leaving(8, 2, 0)), Departure::kFewer);
}

TEST_F(LeaseDeparturesTest, WhatAnotherRankDoesNotLeaveIsNotMissed) {
  departures_.Adopt(std::vector<int64_t>{3, 2, 3}, {8, 4, 8}, true);
  EXPECT_EQ(departures_.After(Leaving(3, 2, 3)), Departure::kNone);
  EXPECT_EQ(departures_.After(Leaving(8, 4, 8)), Departure::kNone);
  EXPECT_EQ(departures_.After(Leaving(2, 4, 8)), Departure::kFewer);
}

TEST_F(LeaseDeparturesTest, HowFarUpLeasesReachIsWhatCounts) {
  departures_.Adopt(std::vector<int64_t>{6, 6, 6}, {6, 6, 6}, true);
  const std::vector<LeaseChange> apart = {{0, KiB(1), KiB(3)}};
  EXPECT_EQ(departures_.After(apart), Departure::kNone);
  const std::vector<LeaseChange> further = {{0, KiB(1), KiB(4)}};
  EXPECT_EQ(departures_.After(further), Departure::kFewer);
  // More than the arena has leaves none.
  const std::vector<LeaseChange> beyond = {{0, KiB(20), {}}};
  EXPECT_EQ(departures_.After(beyond), Departure::kFewer);
}

TEST_F(LeaseDeparturesTest, MorePlacesAreWaitedForEverLonger) {
  const std::vector<int64_t> few = {1, 1, 1};
  departures_.Adopt(few, few, true);
  for (int plans = 0; plans < 9; ++plans) {
    const int patience = plans < 6 ? 1 << plans : 64;
    for (int step = 1; step < patience; ++step) {
      ASSERT_EQ(departures_.After(Leaving(1, 4, 1)), Departure::kNone);
    }
    ASSERT_EQ(departures_.After(Leaving(1, 4, 1)), Departure::kMore);
    departures_.Adopt(few, few, false);
  }
  // Steps that leave no more begin the count again.
  for (int step = 0; step < 100; ++step) {
    const bool more = step % 10 != 0;
    ASSERT_EQ(departures_.After(Leaving(1, more ? 4 : 1, 1)), Departure::kNone);
  }
  // Other accesses begin it all again.
  departures_.Adopt(few, few, true);
  EXPECT_EQ(departures_.After(Leaving(1, 4, 1)), Departure::kMore);
}

TEST_F(LeaseDeparturesTest, APlanIsMadeForTheFewestOfWhatWasSeen) {
  departures_.Adopt(std::vector<int64_t>{5, 5, 5}, {5, 5, 5}, true);
  EXPECT_EQ(departures_.After(Leaving(9, 3, 5)), Departure::kFewer);
  EXPECT_EQ(departures_.own(), (std::vector<int64_t>{5, 3, 5}));
  departures_.Adopt(departures_.own(), departures_.own(), false);
  EXPECT_EQ(departures_.After(Leaving(6, 4, 5)), Departure::kMore);
  EXPECT_EQ(departures_.own(), (std::vector<int64_t>{6, 4, 5}));
  departures_.Adopt(departures_.own(), departures_.own(), false);
  EXPECT_EQ(departures_.After(Leaving(8, 5, 6)), Departure::kNone);
  EXPECT_EQ(departures_.After(Leaving(7, 9, 5)), Departure::kMore);
  EXPECT_EQ(departures_.own(), (std::vector<int64_t>{7, 5, 5}));
}

// Long in one micro-batch, then in the other, for ever.
TEST_F(LeaseDeparturesTest, LengthsThatNeverSettleArePlannedForTogether) {
  std::vector<int64_t> own = {2, 8, 8};
  departures_.Adopt(own, own, true);
  int plans = 0;
  int fewer = 0;
  for (int step = 1; step < 1000; ++step) {
    const Departure departure =
        departures_.After(step % 2 == 0 ? Leaving(2, 8, 8) : Leaving(8, 2, 8));
    fewer += departure == Departure::kFewer;
    if (departure == Departure::kNone) continue;
    ++plans;
    own = departures_.own();
    departures_.Adopt(own, own, false);
  }
  EXPECT_EQ(own, (std::vector<int64_t>{2, 2, 8}));
  EXPECT_LE(plans, 3);
  EXPECT_LE(fewer, 2);
}

}  // namespace
}  // namespace castor
