// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/fetch_forecast.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/plan.h"
#include "placement/planner/plan_validator.h"
#include "placement/planner/step_planner.h"
#include "placement/policy/plan_cost.h"
#include "placement/run_event.h"
#include "placement/trace.h"
#include "tests/placement/random_trace.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::ElementsAre;

// Three chunks used one after the other, 100 ns each, a fetch 150 on the drive
// and 20 to the device.
struct Sweep {
  Trace trace;
  PlanProblem problem;

  Sweep() {
    for (int32_t c = 0; c < 3; ++c) {
      trace.push_back({AccessKind::kUse, ChunkId(c)});
      trace.push_back({AccessKind::kUseEnd, ChunkId(c)});
    }
    problem.param_class = problem.grad_class = {0, 0, 0};
    problem.fetch_cost = {1, 1, 1};
    problem.survives_step = {false, false, false};
    problem.slots = {3};
    problem.prefetch.depth = 1;
    problem.fetch_ns.assign(3, {150, 20, 0});
    problem.used_bytes.assign(3, Bytes(10));
    problem.step_compute_ns = 300;
  }
};

TEST(FetchForecastTest, LegsOfAWayOverlapAndWhatIsLateIsWaitedFor) {
  Sweep sweep;
  // By depth one follows the other: 170, then 170 from its use on.
  Result<StepPlan> made =
      PlanStep(PlanPolicy::kAuto, sweep.trace, sweep.problem);
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(ForeseeFetches(sweep.trace, sweep.problem, made->plan),
            (FetchForecast{1, 3, 170 + 70 + 70}));
  // In time the drive never rests, and is over at 150, 300 and 450: nothing
  // can wait for a moment of the step.
  sweep.problem.prefetch.mode = PrefetchMode::kDeadlines;
  made = PlanStep(PlanPolicy::kAuto, sweep.trace, sweep.problem);
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(ForeseeFetches(sweep.trace, sweep.problem, made->plan),
            (FetchForecast{3, 3, 170 + 50 + 50}));
  EXPECT_THAT(made->plan.initial,
              ElementsAre(ChunkId(0), ChunkId(1), ChunkId(2)));
}

TEST(FetchForecastTest, NothingIsForeseenWithoutTimes) {
  Sweep sweep;
  sweep.problem.prefetch.mode = PrefetchMode::kDeadlines;
  const Sweep timed = sweep;
  const Result<StepPlan> known =
      PlanStep(PlanPolicy::kAuto, timed.trace, timed.problem);
  ASSERT_THAT(known, IsOk());
  sweep.problem.fetch_ns.clear();
  const Result<StepPlan> no_links =
      PlanStep(PlanPolicy::kAuto, sweep.trace, sweep.problem);
  ASSERT_THAT(no_links, IsOk());
  EXPECT_EQ(ForeseeFetches(sweep.trace, sweep.problem, no_links->plan),
            std::nullopt);
  sweep.problem.fetch_ns = timed.problem.fetch_ns;
  sweep.problem.step_compute_ns = 0;
  const Result<StepPlan> no_compute =
      PlanStep(PlanPolicy::kAuto, sweep.trace, sweep.problem);
  ASSERT_THAT(no_compute, IsOk());
  EXPECT_EQ(ForeseeFetches(sweep.trace, sweep.problem, no_compute->plan),
            std::nullopt);
  // Then it goes by depth.
  EXPECT_EQ(no_links->plan, no_compute->plan);
  EXPECT_NE(no_links->plan, known->plan);
  sweep.problem.prefetch.mode = PrefetchMode::kDepth;
  const Result<StepPlan> by_depth =
      PlanStep(PlanPolicy::kAuto, sweep.trace, sweep.problem);
  ASSERT_THAT(by_depth, IsOk());
  EXPECT_EQ(no_links->plan, by_depth->plan);
}

TEST(FetchForecastTest, AShardThatStaysSparesItsWay) {
  Sweep sweep;
  sweep.problem.fetch_ns.assign(3, {150, 20, 5});
  Plan plan;
  plan.first_move.assign(2 * sweep.trace.size() + 1, 0);
  plan.shard_slots = {1};
  plan.initial_shards = {ChunkId(0)};
  plan.initial = {ChunkId(0)};
  plan.moves = {{MoveKind::kFetchShard, RunCause::kPrefetch, ChunkId(1)},
                {MoveKind::kGather, RunCause::kDemand, ChunkId(1), true},
                {MoveKind::kGather, RunCause::kDemand, ChunkId(2)}};
  // The shard comes after the first access, its chunk is made before the use.
  for (size_t s = 2; s < plan.first_move.size(); ++s) {
    plan.first_move[s] = s <= 4 ? 1 : s <= 8 ? 2 : 3;
  }
  // 175 for the first; the second has 100 of 150 + 20 behind it, and 5 to go;
  // the third comes whole.
  EXPECT_EQ(ForeseeFetches(sweep.trace, sweep.problem, plan),
            (FetchForecast{1, 3, 175 + 75 + 175}));
}

int64_t Gathers(const Plan& plan) {
  return std::count_if(
      plan.moves.begin(), plan.moves.end(),
      [](const Move& move) { return move.kind == MoveKind::kGather; });
}

std::vector<ChunkId> Released(const Plan& plan) {
  std::vector<ChunkId> released;
  for (const Move& move : plan.moves) {
    if (move.kind == MoveKind::kRelease) released.push_back(move.chunk);
  }
  std::sort(released.begin(), released.end());
  return released;
}

TEST(FetchForecastTest, DeadlinesStallAsLittleAsADepthWithTheSameSlots) {
  std::mt19937_64 random(TestSeed(20261125));
  const auto pick = [&](int n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  int better = 0;
  int fewer = 0;
  int others = 0;
  const int rounds = TestRounds(1200);
  for (int round = 0; round < rounds; ++round) {
    RandomCase made = MakeRandomCase(random, 4 + round % 8, 10 + round % 60,
                                     pick(4), round % 3 != 0);
    if (round % 4 == 1) PutGradsInPlace(random, &made, pick(3));
    if (round % 4 == 2) AddRandomLeases(random, &made);
    PlanProblem& problem = made.problem;
    // Copies that the last step left are there, under the exact policy.
    const PlanPolicy policy =
        round % 2 == 0 ? PlanPolicy::kAuto : PlanPolicy::kPlanned;
    if (policy == PlanPolicy::kAuto) {
      problem.survives_step.assign(problem.param_class.size(), false);
    }
    const int slow = 1 + static_cast<int>(pick(40));
    for (size_t c = 0; c < problem.param_class.size(); ++c) {
      problem.fetch_ns.push_back(
          {round % 5 == 0 ? pick(slow) : 0, 1 + pick(slow), pick(slow)});
      problem.used_bytes.push_back(Bytes(1 + pick(20)));
    }
    problem.step_compute_ns =
        1 + pick(20 * static_cast<int>(made.trace.size()));
    for (problem.prefetch.depth = 0; problem.prefetch.depth < 12;
         ++problem.prefetch.depth) {
      problem.prefetch.mode = PrefetchMode::kDeadlines;
      const Result<StepPlan> in_time = PlanStep(policy, made.trace, problem);
      ASSERT_THAT(in_time, IsOk());
      ASSERT_THAT(ValidatePlan(made.trace, problem, in_time->plan), IsOk());
      const FetchForecast least =
          *ForeseeFetches(made.trace, problem, in_time->plan);
      problem.prefetch.mode = PrefetchMode::kDepth;
      const Result<StepPlan> by_depth = PlanStep(policy, made.trace, problem);
      ASSERT_THAT(by_depth, IsOk());
      const FetchForecast depth =
          *ForeseeFetches(made.trace, problem, by_depth->plan);
      ASSERT_LE(least.stall_ns, depth.stall_ns)
          << "round " << round << ", depth " << problem.prefetch.depth;
      better += least.stall_ns < depth.stall_ns;
      if (Released(in_time->plan) != Released(by_depth->plan)) {
        ++others;  // slots are spared in one of them
        continue;
      }
      fewer += least.stall_ns == depth.stall_ns &&
               least.most_ahead < depth.most_ahead;
      ASSERT_EQ(StepFetchCosts(problem, in_time->plan),
                StepFetchCosts(problem, by_depth->plan));
      ASSERT_EQ(Gathers(in_time->plan) + in_time->plan.initial.size(),
                Gathers(by_depth->plan) + by_depth->plan.initial.size());
    }
  }
  EXPECT_GT(better * 6, rounds * 5);
  EXPECT_GT(fewer * 6, rounds * 5);
  EXPECT_LT(others, rounds);
}

}  // namespace
}  // namespace castor
