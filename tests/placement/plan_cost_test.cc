// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/plan_cost.h"

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

}  // namespace
}  // namespace castor
