// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/statistics/run_times.h"

#include <optional>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"
#include "tests/tools/report/made_run.h"

namespace castor {
namespace {

TEST(ParseStepRangeTest, ReadsOneStepOrARange) {
  const auto range = ParseStepRange("2-30");
  ASSERT_THAT(range, IsOk());
  EXPECT_EQ(range->first, 2);
  EXPECT_EQ(range->last, 30);
  const auto one = ParseStepRange("7");
  ASSERT_THAT(one, IsOk());
  EXPECT_EQ(one->first, 7);
  EXPECT_EQ(one->last, 7);
}

TEST(ParseStepRangeTest, RefusesAnythingElse) {
  for (const char* text : {"", "-", "0", "0-3", "3-2", "2-", "-2", "2-3-4", "a",
                           "1.5", " 1", "1 ", "99999999999", "+1"}) {
    EXPECT_THAT(ParseStepRange(text), StatusIs(ErrorCode::kInvalidArgument,
                                               testing::EndsWith("as in 2-30")))
        << text;
  }
}

TEST(StepWindowsTest, AStepsOwnEventDecides) {
  MadeRun run(1);
  // Fetched ahead of step 2, before step 1 is over.
  run.At(0, 2).Gather(1, 90, 110, 8).Step(105, 200);
  run.At(0, 1).Step(0, 100).Update(1, 95, 150);
  const auto windows = FindStepWindows(run.record, {});
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[0].step, 1);
  EXPECT_EQ(windows[0].time, (Interval{0, 100'000}));
  EXPECT_TRUE(windows[0].complete);
  EXPECT_EQ(windows[1].step, 2);
  EXPECT_EQ(windows[1].time, (Interval{105'000, 200'000}));
}

TEST(StepWindowsTest, AStepWithoutItsEventSpansWhatIsThere) {
  MadeRun run(2);
  run.At(1, 1).Step(0, 100);
  run.At(1, 2).Use(0, 95, 120).Stall(RunCause::kDemand, 0, 130, 140);
  run.At(0, 1).Use(0, 10, 20);
  run.Cut();
  const auto windows = FindStepWindows(run.record, {});
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].rank, 0);
  EXPECT_FALSE(windows[0].complete);
  // Not before the step before it was over.
  EXPECT_EQ(windows[2].time, (Interval{100'000, 140'000}));
  EXPECT_FALSE(windows[2].complete);
}

TEST(StepWindowsTest, WhatFollowsTheLastStepOfACompleteRecordIsNone) {
  MadeRun run(1);
  run.At(0, 1).Step(0, 100);
  run.At(0, 2).Gather(0, 95, 110, 8).Use(0, 120, 130);
  EXPECT_EQ(LastStep(run.record), 1);
  EXPECT_EQ(FindStepWindows(run.record, {}).size(), 1u);
  run.Cut();
  EXPECT_EQ(LastStep(run.record), 2);
  EXPECT_EQ(FindStepWindows(run.record, {}).size(), 2u);
  EXPECT_EQ(LastStep(RunRecord()), 0);
}

TEST(StepWindowsTest, HoldsOnlyTheStepsAskedFor) {
  MadeRun run(1);
  for (int32_t step = 0; step < 5; ++step) {
    run.At(0, step).Step(step * 10, step * 10 + 9);
  }
  EXPECT_EQ(FindStepWindows(run.record, {}).size(), 4u);
  const auto some = FindStepWindows(run.record, {2, 3});
  ASSERT_EQ(some.size(), 2u);
  EXPECT_EQ(some[0].step, 2);
  EXPECT_TRUE(FindStepWindows(run.record, {9, 12}).empty());
}

TEST(ResidencyTest, LastsFromGatherToRelease) {
  MadeRun run(2);
  // Recorded in any order.
  run.At(0, 1).Release(1, 50, RunCause::kStale).Gather(1, 10, 20, 8);
  run.Gather(1, 70, 75, 8, RunCause::kDemand).Use(2, 80, 200);
  run.At(1, 1).Gather(1, 30, 40, 8).Release(1, 60);
  const auto found = FindResidencies(run.record.events);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].rank, 0);
  EXPECT_EQ(found[0].time, (Interval{10'000, 50'000}));
  EXPECT_EQ(found[0].fetched, RunCause::kPrefetch);
  EXPECT_EQ(found[0].released, RunCause::kStale);
  // Still there when the record ends.
  EXPECT_EQ(found[1].time, (Interval{70'000, 200'000}));
  EXPECT_EQ(found[1].released, RunCause::kNone);
  EXPECT_EQ(found[2].rank, 1);
  EXPECT_EQ(found[2].time, (Interval{30'000, 60'000}));
}

TEST(ResidencyTest, ALostReleaseEndsAtTheNextGather) {
  MadeRun run(1);
  run.At(0, 1).Gather(0, 10, 20, 8).Gather(0, 40, 50, 8).Release(0, 60);
  run.Release(0, 65);
  const auto found = FindResidencies(run.record.events);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].time, (Interval{10'000, 40'000}));
  EXPECT_EQ(found[1].time, (Interval{40'000, 60'000}));
}

TEST(ResidencyTest, BeginsWithTheShardThatIsGatheredAround) {
  MadeRun run(1);
  run.At(0, 1).Move(Tier::kHost, Tier::kDevice, 5, 8, 4, RunCause::kDemand);
  run.Gather(0, 10, 20, 8, RunCause::kDemand).Release(0, 30);
  // A replicated chunk is only copied.
  run.At(0, 2).Move(Tier::kHost, Tier::kDevice, 40, 45, 4).Release(0, 60);
  // These fill no slot with parameters.
  run.Move(Tier::kHost, Tier::kDevice, 70, 71, 4, RunCause::kRefresh);
  run.Move(Tier::kDevice, Tier::kHost, 72, 73, 4);
  run.Move(Tier::kHost, Tier::kDevice, 74, 75, 4);
  run.record.events.back().state = StateKind::kGrad;
  const auto found = FindResidencies(run.record.events);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].time, (Interval{5'000, 30'000}));
  EXPECT_EQ(found[0].fetched, RunCause::kDemand);
  EXPECT_EQ(found[1].time, (Interval{40'000, 60'000}));
  EXPECT_EQ(found[1].step, 2);
}

TEST(ResidencyTest, ReleasedAndGatheredAtOneTimeIsTwoStays) {
  MadeRun run(1);
  run.At(0, 1).Gather(0, 10, 20, 8).Gather(0, 30, 40, 8).Release(0, 30);
  run.Release(0, 50);
  const auto found = FindResidencies(run.record.events);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].time, (Interval{10'000, 30'000}));
  EXPECT_EQ(found[1].time, (Interval{30'000, 50'000}));
}

TEST(ResidencyTest, StaysOfOneChunkNeverOverlap) {
  std::mt19937_64 random(TestSeed(33));
  for (int round = 0; round < 200; ++round) {
    const auto events = RandomEvents(random, 400);
    const auto found = FindResidencies(events);
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_GE(found[i].time.length(), 0);
      if (i == 0 || found[i - 1].rank != found[i].rank ||
          found[i - 1].chunk != found[i].chunk) {
        continue;
      }
      ASSERT_LE(found[i - 1].time.end, found[i].time.begin);
    }
  }
}

TEST(RunTimesTest, WhatWasThereBeforeStepsThatAreNotRecordedEndsWithThem) {
  MadeRun run(1);
  // Steps 1, 2, and 5.
  run.At(0, 1).Step(0, 100).Gather(1, 10, 20, 100);
  run.At(0, 2).Step(100, 200).Gather(2, 110, 120, 100);
  run.At(0, 5).Step(500, 600).Gather(1, 510, 520, 100).Release(2, 530);
  const std::vector<Residency> found = FindResidencies(run.record.events);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].time, (Interval{10'000, 200'000}));
  EXPECT_EQ(found[0].released, RunCause::kNone);
  EXPECT_EQ(found[1].time, (Interval{510'000, 600'000}));
  EXPECT_EQ(found[2].time, (Interval{110'000, 200'000}));
}

TEST(RunTimesTest, ALanesTimeIsWhereItsUsesAre) {
  MadeRun run(1);
  // Calls return ahead of the lane.
  run.At(0, 1).Step(0, 20).Use(0, 10, 100);
  run.record.events.back().moment = 1;
  run.At(0, 2).Step(20, 40).Use(0, 110, 200);
  run.record.events.back().moment = 1;
  EXPECT_EQ(FindLaneTime(run.record, 0, 2), (Interval{100'000, 200'000}));
  EXPECT_EQ(FindLaneTime(run.record, 0, 1), (Interval{0, 100'000}));
  EXPECT_EQ(FindLaneTime(run.record, 0, 3), std::nullopt);
}

}  // namespace
}  // namespace castor
