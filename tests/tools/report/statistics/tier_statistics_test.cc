// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/report/made_run.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

std::vector<TierStatistics> Compute(const MadeRun& run, StepRange steps = {}) {
  return ComputeTierStatistics(run.record, FindStepWindows(run.record, steps),
                               steps, 4);
}

TEST(TierStatisticsTest, FollowsTheBytesOverTheStep) {
  MadeRun run(1);
  run.At(0, 0).TierBytes(Tier::kDevice, -5, 40);
  run.At(0, 1).Step(0, 100);
  run.TierBytes(Tier::kDevice, 50, 80).TierBytes(Tier::kDevice, 60, 20);
  const auto tiers = Compute(run);
  ASSERT_EQ(tiers.size(), 1u);
  EXPECT_EQ(tiers[0].tier, Tier::kDevice);
  EXPECT_EQ(tiers[0].peak_bytes, 80);
  EXPECT_EQ(tiers[0].peak_step, 1);
  EXPECT_EQ(tiers[0].budget_bytes, 100);
  // 40 until 50, 80 until 60, 20 from then on.
  EXPECT_THAT(tiers[0].over_step,
              ElementsAre(DoubleNear(40, 1e-9), DoubleNear(40, 1e-9),
                          DoubleNear((80 * 10 + 20 * 15) / 25.0, 1e-9),
                          DoubleNear(20, 1e-9)));
}

TEST(TierStatisticsTest, MeansOverRanksAndStepsAndNamesThePeak) {
  MadeRun run(2);
  run.record.ranks[1].budget_bytes[0] = 200;
  for (int32_t rank = 0; rank < 2; ++rank) {
    for (int32_t step = 1; step <= 2; ++step) {
      run.At(rank, step).Step(step * 100, step * 100 + 100);
      run.TierBytes(Tier::kDevice, step * 100, 10 * (rank + 1) * step);
    }
  }
  const auto tiers = Compute(run);
  ASSERT_EQ(tiers.size(), 1u);
  EXPECT_EQ(tiers[0].peak_bytes, 40);
  EXPECT_EQ(tiers[0].peak_rank, 1);
  EXPECT_EQ(tiers[0].peak_step, 2);
  EXPECT_EQ(tiers[0].budget_bytes, 200);
  for (const double part : tiers[0].over_step) {
    EXPECT_NEAR(part, (10 + 20 + 20 + 40) / 4.0, 1e-9);
  }
}

TEST(TierStatisticsTest, ThePeakOfChosenStepsIsTheirs) {
  MadeRun run(1);
  run.At(0, 0).TierBytes(Tier::kDevice, 0, 99);
  run.At(0, 0).TierBytes(Tier::kDevice, 5, 30);
  run.At(0, 1).Step(10, 20).TierBytes(Tier::kDevice, 15, 70);
  run.TierBytes(Tier::kDevice, 18, 25);
  run.At(0, 2).Step(20, 30);
  EXPECT_EQ(Compute(run)[0].peak_bytes, 99);
  EXPECT_EQ(Compute(run, {1, 1})[0].peak_bytes, 70);
  // What was there when the step began counts.
  EXPECT_EQ(Compute(run, {2, 2})[0].peak_bytes, 25);
}

TEST(TierStatisticsTest, OfSeveralValuesAtOneTimeTheLastHolds) {
  MadeRun run(1);
  run.At(0, 1).Step(0, 100);
  run.TierBytes(Tier::kHost, 0, 50).TierBytes(Tier::kHost, 0, 10);
  const auto tiers = Compute(run);
  // The device has a budget, so it is shown although it stayed empty.
  ASSERT_EQ(tiers.size(), 2u);
  EXPECT_EQ(tiers[0].tier, Tier::kDevice);
  EXPECT_EQ(tiers[0].peak_bytes, 0);
  EXPECT_EQ(tiers[1].tier, Tier::kHost);
  EXPECT_EQ(tiers[1].budget_bytes, 0);
  EXPECT_EQ(tiers[1].peak_bytes, 50);
  EXPECT_NEAR(tiers[1].over_step[0], 10, 1e-9);
}

TEST(TierStatisticsTest, PartialStepsAreDrawnOnlyWhereThereIsNoOther) {
  MadeRun run(1);
  run.Cut();
  run.At(0, 1).Use(0, 0, 100).TierBytes(Tier::kDevice, 0, 10);
  EXPECT_NEAR(Compute(run)[0].over_step[0], 10, 1e-9);
  run.At(0, 2).Step(100, 200).TierBytes(Tier::kDevice, 100, 60);
  EXPECT_NEAR(Compute(run)[0].over_step[0], 60, 1e-9);
}

}  // namespace
}  // namespace castor
