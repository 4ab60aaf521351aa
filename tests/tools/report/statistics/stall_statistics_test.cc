// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/report/made_run.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

using testing::HasSubstr;

std::vector<StallStatistics> Compute(const MadeRun& run, StepRange steps = {}) {
  const auto windows = FindStepWindows(run.record, steps);
  const auto links = ComputeLinkStatistics(run.record, windows, steps, 4);
  return ComputeStallStatistics(run.record, links, steps, 2);
}

TEST(StallStatisticsTest, SumsByCauseWithTheWorstChunks) {
  MadeRun run(2);
  run.At(0, 2).Stall(RunCause::kPrefetch, 3, 0, 10);
  run.Stall(RunCause::kPrefetch, 1, 20, 50)
      .Stall(RunCause::kPrefetch, 2, 60, 65);
  run.Stall(RunCause::kDemand, 1, 70, 72);
  run.At(1, 2).Stall(RunCause::kPrefetch, 3, 0, 25);
  const auto stalls = Compute(run);
  ASSERT_EQ(stalls.size(), 2u);
  EXPECT_EQ(stalls[0].cause, RunCause::kPrefetch);
  EXPECT_EQ(stalls[0].count, 4);
  EXPECT_EQ(stalls[0].ns, 70'000);
  ASSERT_EQ(stalls[0].worst.size(), 2u);
  EXPECT_EQ(stalls[0].worst[0].chunk, 3);
  EXPECT_EQ(stalls[0].worst[0].ns, 35'000);
  EXPECT_EQ(stalls[0].worst[0].count, 2);
  EXPECT_EQ(stalls[0].worst[0].params, "layer.3");
  EXPECT_EQ(stalls[0].worst[1].chunk, 1);
  EXPECT_EQ(stalls[1].cause, RunCause::kDemand);
  EXPECT_EQ(stalls[1].ns, 2'000);
}

TEST(StallStatisticsTest, LanesThatWaitAtOnceWaitOnce) {
  MadeRun run(1);
  run.At(0, 2).Stall(RunCause::kPrefetch, 0, 0, 10);
  run.Stall(RunCause::kPrefetch, 1, 5, 15);
  const auto stalls = Compute(run);
  ASSERT_EQ(stalls.size(), 1u);
  EXPECT_EQ(stalls[0].ns, 15'000);
  EXPECT_EQ(stalls[0].count, 2);
}

TEST(StallStatisticsTest, NamesTheLinkThatWasAtWork) {
  MadeRun run(1);
  run.At(0, 2).Step(0, 100).Stall(RunCause::kPrefetch, 0, 10, 30);
  run.Move(Tier::kHost, Tier::kDevice, 0, 15, 10);
  run.Move(Tier::kNvme, Tier::kHost, 12, 40, 10);
  const auto stalls = Compute(run);
  ASSERT_TRUE(stalls[0].busiest.has_value());
  EXPECT_EQ(LinkName(*stalls[0].busiest), "nvme -> host");
  EXPECT_DOUBLE_EQ(stalls[0].busiest_share, 0.9);
  const std::string hint = StallHint(stalls[0], 0, 2);
  EXPECT_THAT(hint, HasSubstr("nvme -> host was busy 90 %"));
  EXPECT_THAT(hint, HasSubstr("--host-budget"));
}

TEST(StallStatisticsTest, HintsFollowTheCause) {
  StallStatistics stall;
  stall.ns = 100;
  stall.cause = RunCause::kDemand;
  stall.first_step_ns = 90;
  EXPECT_THAT(StallHint(stall, 0, 30), HasSubstr("--steps 2-30"));
  // A record of step 1 alone cannot be read without it.
  EXPECT_THAT(StallHint(stall, 0, 1), HasSubstr("--device-budget"));
  stall.first_step_ns = 10;
  EXPECT_THAT(StallHint(stall, 4, 30), HasSubstr("4 steps departed"));
  stall.cause = RunCause::kGradient;
  EXPECT_THAT(StallHint(stall, 4, 30), HasSubstr("gradient"));
  stall.cause = RunCause::kOptimizer;
  EXPECT_THAT(StallHint(stall, 0, 30), HasSubstr("cores"));
  stall.cause = RunCause::kPrefetch;
  EXPECT_THAT(StallHint(stall, 0, 30), HasSubstr("no link was busy"));
  stall.busiest = LinkId{RunEventKind::kGather};
  stall.busiest_share = 0.8;
  EXPECT_THAT(StallHint(stall, 0, 30), HasSubstr("all-gather was busy 80 %"));
  stall.cause = RunCause::kNone;
  stall.busiest.reset();
  EXPECT_EQ(StallHint(stall, 0, 30), "");
}

}  // namespace
}  // namespace castor
