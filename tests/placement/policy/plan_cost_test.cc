// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/plan_cost.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

using testing::ElementsAre;

TEST(PlanCostTest, CountsWhatASteadyStepGathersByClass) {
  PlanProblem problem;
  problem.param_class = {0, 1, 0, 0};
  problem.fetch_cost = {1, 10, 2, 4};
  problem.survives_step = {true, false, true, true};
  problem.slots = {4, 4};
  const auto gather = [](int c) {
    return Move{MoveKind::kGather, RunCause::kDemand, ChunkId(c)};
  };
  const auto release = [](int c) {
    return Move{MoveKind::kRelease, RunCause::kRoom, ChunkId(c)};
  };
  Plan plan;
  // 0 is there from the step before; 1 is stale then.
  plan.initial = {ChunkId(0), ChunkId(1)};
  EXPECT_THAT(StepFetchCosts(problem, plan), ElementsAre(0, 10));
  plan.moves = {gather(2), release(2), gather(2)};
  EXPECT_THAT(StepFetchCosts(problem, plan), ElementsAre(4, 10));
  // What is dropped has to be brought back, in the step or for the next.
  plan.moves = {release(0), gather(3), release(3)};
  EXPECT_THAT(StepFetchCosts(problem, plan), ElementsAre(1 + 4, 10));
  plan.moves.push_back(gather(0));
  EXPECT_THAT(StepFetchCosts(problem, plan), ElementsAre(1 + 4, 10));
}

TEST(PlanCostTest, AGatherFromAShardsCopyCostsNoFetch) {
  PlanProblem problem;
  problem.param_class = {0, 0};
  problem.fetch_cost = {5, 7};
  problem.shard_cost = {3, 4};
  problem.shards_per_slot = {2};
  problem.survives_step = {false, true};
  problem.slots = {3};
  const auto move = [](MoveKind kind, int c, bool from_shard = false) {
    return Move{kind, RunCause::kDemand, ChunkId(c), from_shard};
  };
  Plan plan;
  plan.shard_slots = {1};
  plan.moves = {move(MoveKind::kFetchShard, 0),
                move(MoveKind::kGather, 0, true), move(MoveKind::kRelease, 0),
                move(MoveKind::kGather, 0, true),
                move(MoveKind::kDropShard, 0)};
  EXPECT_THAT(StepFetchCosts(problem, plan), ElementsAre(3 + 2 + 2));
  // A frozen chunk's that stays is there in every step; one that goes is
  // brought back for the next.
  plan.moves = {move(MoveKind::kGather, 1, true)};
  plan.initial_shards = {ChunkId(1)};
  EXPECT_THAT(StepFetchCosts(problem, plan), ElementsAre(3));
  plan.moves.push_back(move(MoveKind::kDropShard, 1));
  EXPECT_THAT(StepFetchCosts(problem, plan), ElementsAre(3 + 4));
  // What is gathered before the step is gathered from it, too.
  plan.moves.clear();
  plan.initial = {ChunkId(0)};
  plan.initial_shards = {ChunkId(0)};
  EXPECT_THAT(StepFetchCosts(problem, plan), ElementsAre(3 + 2));
}

}  // namespace
}  // namespace castor
