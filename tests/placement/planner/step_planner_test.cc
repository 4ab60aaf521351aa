// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/planner/step_planner.h"

#include <cstdint>
#include <random>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/plan.h"
#include "placement/planner/plan_validator.h"
#include "placement/policy/next_use_policy.h"
#include "placement/policy/plan_cost.h"
#include "placement/trace.h"
#include "tests/placement/random_trace.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

double CostOf(const RandomCase& made, const Plan& plan) {
  double cost = 0;
  for (const double each : StepFetchCosts(made.problem, plan)) cost += each;
  return cost;
}

TEST(StepPlannerTest, APolicyMakesItsOwnPlanAndOnlyOneProvesIt) {
  std::mt19937_64 random(TestSeed(20261122));
  for (int i = 0; i < 100; ++i) {
    const RandomCase made = MakeRandomCase(random, 6, 40, i % 3, i % 2 == 0);
    const Result<StepPlan> by_use =
        PlanStep(PlanPolicy::kAuto, made.trace, made.problem);
    ASSERT_THAT(by_use, IsOk());
    EXPECT_EQ(by_use->plan, *PlanNextUse(made.trace, made.problem));
    EXPECT_FALSE(by_use->certificate);
    const Result<StepPlan> exact =
        PlanStep(PlanPolicy::kPlanned, made.trace, made.problem);
    ASSERT_THAT(exact, IsOk());
    ASSERT_TRUE(exact->certificate);
    EXPECT_THAT(ValidatePlan(made.trace, made.problem, exact->plan), IsOk());
    EXPECT_GE(CostOf(made, exact->plan), exact->certificate->lower_bound);
    EXPECT_GE(CostOf(made, by_use->plan), exact->certificate->lower_bound);
    if (exact->certificate->optimal) {
      EXPECT_LE(CostOf(made, exact->plan), CostOf(made, by_use->plan));
    }
  }
}

TEST(StepPlannerTest, BothRefuseWhatHoldsMoreThanThereAreSlots) {
  PlanProblem problem;
  problem.param_class = {0, 0};
  problem.grad_class = {0, 0};
  problem.fetch_cost = {1, 1};
  problem.survives_step = {false, false};
  problem.slots = {1};
  const Trace trace = {{AccessKind::kUse, ChunkId(0)},
                       {AccessKind::kUse, ChunkId(1)},
                       {AccessKind::kUseEnd, ChunkId(1)},
                       {AccessKind::kUseEnd, ChunkId(0)}};
  for (const PlanPolicy policy : {PlanPolicy::kAuto, PlanPolicy::kPlanned}) {
    EXPECT_THAT(PlanStep(policy, trace, problem),
                StatusIs(ErrorCode::kInfeasible, testing::_));
  }
}

}  // namespace
}  // namespace castor
