// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/loss_scaler.h"

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

LossScaling Dynamic() {
  return {.kind = LossScalingKind::kDynamic,
          .initial = 1024,
          .growth_interval = 3,
          .hysteresis = 2,
          .least = 256,
          .most = 2048};
}

TEST(LossScalerTest, GrowsAfterCleanStepsUpToTheMost) {
  LossScaler scaler(Dynamic());
  for (int step = 0; step < 2; ++step) EXPECT_TRUE(scaler.Update(false));
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 2048);
  for (int step = 0; step < 9; ++step) scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 2048);
}

TEST(LossScalerTest, FallsAtTheSecondOverflowAndEveryOneAfterIt) {
  LossScaler scaler(Dynamic());
  scaler.Update(false);
  scaler.Update(false);
  EXPECT_TRUE(scaler.Update(true));
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 1024) << "an overflow begins the count anew";
  EXPECT_TRUE(scaler.Update(true));
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_TRUE(scaler.Update(true));
  EXPECT_EQ(scaler.scale(), 256);
  EXPECT_FALSE(scaler.Update(true)) << "it is as low as it may be";
  EXPECT_EQ(scaler.scale(), 256);
  EXPECT_EQ(scaler.state().skipped_steps, 4);
  for (int step = 0; step < 3; ++step) scaler.Update(false);
  EXPECT_EQ(scaler.scale(), 512);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 512) << "growing forgives the overflows before";
}

TEST(LossScalerTest, StaticAndNoneStay) {
  LossScaler fixed({.kind = LossScalingKind::kStatic, .initial = 128});
  LossScaler none({.initial = 128});
  EXPECT_TRUE(fixed.looks_for_overflow());
  EXPECT_FALSE(none.looks_for_overflow());
  EXPECT_TRUE(fixed.Update(true));
  EXPECT_EQ(fixed.scale(), 128);
  EXPECT_EQ(fixed.state().skipped_steps, 1);
  EXPECT_EQ(none.scale(), 1);
}

TEST(LossScalerTest, GoesOnFromAStateAsIfNothingHadBeen) {
  LossScaler scaler(Dynamic());
  for (bool overflowed : {false, true, false, true, false, false}) {
    scaler.Update(overflowed);
  }
  LossScaler other(Dynamic());
  ASSERT_THAT(other.Restore(scaler.state()), IsOk());
  for (bool overflowed : {false, true, true, false, false, false}) {
    scaler.Update(overflowed);
    other.Update(overflowed);
    EXPECT_EQ(other.state(), scaler.state());
  }
  LossScaleState state = scaler.state();
  state.scale = 4096;
  EXPECT_THAT(other.Restore(state), StatusIs(ErrorCode::kInvalidArgument));
  EXPECT_EQ(other.state(), scaler.state());
  LossScaler fixed({.kind = LossScalingKind::kStatic, .initial = 128});
  ASSERT_THAT(fixed.Restore(scaler.state()), IsOk());
  EXPECT_EQ(fixed.scale(), 128);
}

TEST(LossScalerTest, RefusesWhatHasNoMeaning) {
  EXPECT_THAT(CheckLossScaling({.initial = -1}), IsOk()) << "nobody asks";
  EXPECT_THAT(CheckLossScaling(Dynamic()), IsOk());
  LossScaling none[8];
  for (LossScaling& scaling : none) scaling = Dynamic();
  none[0].initial = 0;
  none[1].growth = 0.5;
  none[2].backoff = 1;
  none[3].growth_interval = 0;
  none[4].hysteresis = 0;
  none[5].least = 2000;
  none[6].most = 1000;
  none[7] = {.kind = LossScalingKind::kStatic, .initial = -2};
  for (const LossScaling& scaling : none) {
    EXPECT_THAT(CheckLossScaling(scaling),
                StatusIs(ErrorCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace castor
