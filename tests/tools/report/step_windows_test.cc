// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/step_windows.h"

#include "gtest/gtest.h"
#include "tests/tools/report/made_run.h"

namespace castor {
namespace {

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

}  // namespace
}  // namespace castor
