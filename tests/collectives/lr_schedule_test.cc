// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/lr_schedule.h"

#include <limits>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

TEST(LrScheduleTest, WarmsUpAndFalls) {
  LrSchedule schedule = {.peak = 8, .floor = 2, .warmup = 4, .steps = 10};
  for (LrShape shape :
       {LrShape::kConstant, LrShape::kLinear, LrShape::kCosine}) {
    schedule.shape = shape;
    ASSERT_THAT(CheckLrSchedule(schedule), IsOk());
    EXPECT_EQ(LearningRateAt(schedule, 1), 2);
    EXPECT_EQ(LearningRateAt(schedule, 3), 6);
    EXPECT_EQ(LearningRateAt(schedule, 4), 8);
  }
  schedule.shape = LrShape::kConstant;
  EXPECT_EQ(LearningRateAt(schedule, 9), 8);
  schedule.shape = LrShape::kLinear;
  EXPECT_EQ(LearningRateAt(schedule, 7), 5);
  EXPECT_EQ(LearningRateAt(schedule, 10), 2);
  EXPECT_EQ(LearningRateAt(schedule, 11), 2);
  schedule.shape = LrShape::kCosine;
  EXPECT_NEAR(LearningRateAt(schedule, 6), 2 + 6 * 0.75, 1e-12);
  EXPECT_NEAR(LearningRateAt(schedule, 7), 5, 1e-12);
  EXPECT_NEAR(LearningRateAt(schedule, 10), 2, 1e-12);
}

TEST(LrScheduleTest, WithoutWarmupTheFirstStepIsOnItsWayDown) {
  const LrSchedule schedule = {
      .shape = LrShape::kLinear, .peak = 4, .warmup = 0, .steps = 4};
  EXPECT_EQ(LearningRateAt(schedule, 1), 3);
  EXPECT_EQ(LearningRateAt(schedule, 4), 0);
}

TEST(LrScheduleTest, RefusesWhatHasNoMeaning) {
  EXPECT_THAT(CheckLrSchedule({.warmup = 5, .steps = 3}), IsOk());
  const LrSchedule none[] = {
      {.peak = -1},
      {.peak = std::numeric_limits<double>::infinity()},
      {.floor = -1},
      {.warmup = -1},
      {.shape = LrShape::kCosine, .warmup = 3, .steps = 3},
  };
  for (const LrSchedule& schedule : none) {
    EXPECT_THAT(CheckLrSchedule(schedule),
                StatusIs(ErrorCode::kInvalidArgument));
  }
  EXPECT_EQ(ParseLrShape("cosine"), LrShape::kCosine);
  EXPECT_EQ(ParseLrShape("cos"), std::nullopt);
}

}  // namespace
}  // namespace castor
