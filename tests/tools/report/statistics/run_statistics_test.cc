// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/statistics/run_statistics.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/test_seed.h"
#include "tests/tools/report/made_run.h"

namespace castor {
namespace {

using testing::ElementsAre;

// Three steps of 100, 80 and 120 us on two ranks; the third has no end on
// rank 1.
MadeRun ThreeSteps() {
  MadeRun run(2, 5);
  for (int32_t rank = 0; rank < 2; ++rank) {
    run.At(rank, 1).Step(0, 100 - rank).Gather(0, 10, 20, 500);
    run.Stall(RunCause::kDemand, 0, 10, 20 + 10 * rank);
    run.Release(0, 90).Update(0, 100, 130);
    run.At(rank, 2).Gather(0, 95, 105, 700).Step(100, 180);
    run.At(rank, 3).Gather(0, 200, 240, 900, RunCause::kDemand);
    run.Divergence(199);
    if (rank == 0) run.Step(180, 300);
  }
  return run;
}

TEST(RunStatisticsTest, AStepThatADamagedRecordHasOfOneRankIsNotWhole) {
  MadeRun run(2);
  run.Cut().At(0, 1).Step(0, 100).Gather(0, 10, 20, 8);
  const RunStatistics statistics = ComputeRunStatistics(run.record, {});
  ASSERT_EQ(statistics.steps.size(), 1u);
  EXPECT_FALSE(statistics.steps[0].complete);
  EXPECT_EQ(statistics.complete_steps, 0);
}

TEST(RunStatisticsTest, DescribesTheRecord) {
  MadeRun run = ThreeSteps();
  run.record.dropped = 3;
  run.record.file_bytes = 1234;
  const RunStatistics statistics = ComputeRunStatistics(run.record, {});
  EXPECT_EQ(statistics.world, 2);
  EXPECT_EQ(statistics.stage, 3);
  EXPECT_EQ(statistics.chunks, 5);
  EXPECT_EQ(statistics.chunk_bytes, 1000);
  EXPECT_EQ(statistics.events, static_cast<int64_t>(run.record.events.size()));
  EXPECT_EQ(statistics.dropped, 3);
  EXPECT_EQ(statistics.file_bytes, 1234);
  EXPECT_EQ(statistics.copies, 6);
  EXPECT_EQ(statistics.prefetched_copies, 4);
  EXPECT_EQ(statistics.divergences, 2);
}

TEST(RunStatisticsTest, AGuessIsWrongWhereTheStepUpdatesTheChunkAgain) {
  MadeRun run(1);
  run.At(0, 1).Step(0, 100);
  run.Update(0, 10, 20, RunCause::kGuess).Update(0, 20, 25, RunCause::kGuess);
  run.Update(1, 30, 40, RunCause::kGuess);
  run.Update(0, 90, 99, RunCause::kOptimizer);
  run.Update(2, 90, 99, RunCause::kOptimizer);
  run.At(0, 2).Step(100, 200);
  run.Update(0, 110, 120, RunCause::kGuess);
  const RunStatistics statistics = ComputeRunStatistics(run.record, {});
  EXPECT_EQ(statistics.guesses, 3);
  EXPECT_EQ(statistics.wrong_guesses, 1);
  EXPECT_EQ(statistics.wrong_ns, 15'000);
}

TEST(RunStatisticsTest, SpreadsGoOverCompleteStepsOnly) {
  const MadeRun run = ThreeSteps();
  const RunStatistics statistics = ComputeRunStatistics(run.record, {});
  ASSERT_EQ(statistics.steps.size(), 3u);
  EXPECT_EQ(statistics.complete_steps, 2);
  EXPECT_FALSE(statistics.steps[2].complete);
  EXPECT_EQ(statistics.step_ns.min, 80'000);
  EXPECT_EQ(statistics.step_ns.median, 90'000);
  EXPECT_EQ(statistics.step_ns.max, 100'000);
  EXPECT_EQ(statistics.step_ns.max_step, 1);
  // Of the rank that waited longest.
  EXPECT_EQ(statistics.stalled_ns.max, 20'000);
  EXPECT_EQ(statistics.stalled_ns.min, 0);
  ASSERT_EQ(statistics.links.size(), 1u);
  EXPECT_THAT(statistics.steps[0].link_bytes, ElementsAre(1000));
  EXPECT_THAT(statistics.steps[2].link_bytes, ElementsAre(1800));
  EXPECT_EQ(statistics.link_bytes[0].min, 1000);
  EXPECT_EQ(statistics.link_bytes[0].max, 1400);
  EXPECT_EQ(statistics.link_bytes[0].max_step, 2);
}

TEST(RunStatisticsTest, RanksAddUp) {
  const MadeRun run = ThreeSteps();
  const RunStatistics statistics = ComputeRunStatistics(run.record, {1, 2});
  ASSERT_EQ(statistics.ranks.size(), 2u);
  const RankStatistics& second = statistics.ranks[1];
  EXPECT_EQ(second.rank, 1);
  EXPECT_EQ(second.step_ns, 99'000 + 80'000);
  EXPECT_EQ(second.stalled_ns, 20'000);
  EXPECT_EQ(second.updating_ns, 30'000);
  EXPECT_EQ(second.moving_ns, 20'000);
  EXPECT_EQ(second.unhidden_ns, 10'000);
  EXPECT_EQ(statistics.all_ranks.step_ns, 180'000 + 179'000);
  EXPECT_EQ(statistics.all_ranks.stalled_ns, 30'000);
  // There is one link, so what it did unhidden is what all moves were.
  ASSERT_EQ(statistics.links.size(), 1u);
  EXPECT_EQ(statistics.link_unhidden_ns[0], statistics.all_ranks.unhidden_ns);
  EXPECT_GE(statistics.link_unhidden_ns[0], 10'000);
}

TEST(RunStatisticsTest, AnEmptyRecordHasNoSteps) {
  const RunStatistics statistics = ComputeRunStatistics(RunRecord(), {});
  EXPECT_TRUE(statistics.steps.empty());
  EXPECT_EQ(statistics.stage, -1);
  EXPECT_EQ(statistics.step_ns.max, 0);
}

TEST(RunStatisticsTest, BearsAnyEventsAndItsBytesAreTheirSum) {
  std::mt19937_64 random(TestSeed(31));
  for (int round = 0; round < 300; ++round) {
    RunRecord record;
    if (round % 3 > 0) record.ranks.push_back(SomeRank(0, 8, 3));
    record.events = RandomEvents(random, random() % 200);
    const StepRange steps = round % 2 == 0 ? StepRange{10, 60} : StepRange{};
    const RunStatistics statistics = ComputeRunStatistics(record, steps);
    int64_t expected = 0;
    for (const RunEvent& event : record.events) {
      if (MovesBytes(event)) expected += event.bytes;
    }
    int64_t found = 0;
    for (const LinkStatistics& link : statistics.links) {
      found += link.bytes + link.outside_bytes;
    }
    if (steps.HoldsAll()) {
      ASSERT_EQ(found, expected);
    } else {
      ASSERT_LE(found, expected);
    }
    for (const RankStatistics& rank : statistics.ranks) {
      ASSERT_LE(rank.stalled_ns, rank.step_ns);
      ASSERT_LE(rank.unhidden_ns, rank.moving_ns);
    }
    for (size_t i = 0; i < statistics.links.size(); ++i) {
      ASSERT_LE(statistics.link_unhidden_ns[i], statistics.links[i].busy_ns);
    }
  }
}

RunPlanInfo PlanOf(int32_t rank) {
  RunPlanInfo plan;
  plan.rank = rank;
  plan.step = 1;
  plan.in_seconds = true;
  plan.moments = 10;
  RunPlanClass slots;
  slots.slot_bytes = 4096;
  slots.slots = 3;
  slots.cost = 9;
  slots.lower_bound = 9;
  slots.optimal = slots.priced = true;
  slots.prices = {{2, 0.5}, {4, 1}, {6, 0.25}, {8, 0}};
  plan.classes = {slots};
  return plan;
}

TEST(PlanStatisticsTest, ASlotIsWorthItsPricesOverAllMoments) {
  RunRecord record;
  EXPECT_FALSE(ComputePlanStatistics(record));
  record.plans = {PlanOf(0), PlanOf(1)};
  const auto plan = ComputePlanStatistics(record);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->moments, 10);
  EXPECT_TRUE(plan->in_seconds);
  ASSERT_EQ(plan->slots.size(), 1u);
  const SlotWorth& worth = plan->slots[0];
  EXPECT_DOUBLE_EQ(*worth.one_more_saves, 0.5 * 2 + 1 * 2 + 0.25 * 2);
  EXPECT_DOUBLE_EQ(*worth.one_less_costs, 3.5);
  EXPECT_EQ(worth.dearest_first, 4);
  EXPECT_EQ(worth.dearest_last, 5);
}

TEST(PlanStatisticsTest, WhatIsNotProvedWidensTheAnswer) {
  RunRecord record;
  record.plans = {PlanOf(0)};
  RunPlanClass& slots = record.plans[0].classes[0];
  slots.optimal = false;
  slots.lower_bound = 8;
  SlotWorth worth = ComputePlanStatistics(record)->slots[0];
  EXPECT_DOUBLE_EQ(*worth.one_more_saves, 4.5);
  EXPECT_DOUBLE_EQ(*worth.one_less_costs, 2.5);
  // No slot saves more than there is, and none less than nothing.
  slots.prices = {{9, 100}};
  EXPECT_DOUBLE_EQ(*ComputePlanStatistics(record)->slots[0].one_more_saves, 9);
  slots.prices.clear();
  worth = ComputePlanStatistics(record)->slots[0];
  EXPECT_DOUBLE_EQ(*worth.one_less_costs, 0);
  EXPECT_EQ(worth.dearest_first, -1);
  slots.priced = false;
  EXPECT_FALSE(ComputePlanStatistics(record)->slots[0].one_more_saves);
}

}  // namespace
}  // namespace castor
