// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/exact_policy.h"

#include <cmath>
#include <iostream>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/planner/plan_validator.h"
#include "placement/policy/next_use_policy.h"
#include "placement/policy/plan_cost.h"
#include "tests/placement/exact/exhaustive_plan.h"
#include "tests/placement/random_trace.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"
#include "tools/bench/support/cache_rules.h"

namespace castor {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Trace Uses(const std::vector<int>& chunks) {
  Trace trace;
  for (int c : chunks) {
    trace.push_back({AccessKind::kUse, ChunkId(c)});
    trace.push_back({AccessKind::kUseEnd, ChunkId(c)});
  }
  return trace;
}

PlanProblem OneClass(int chunks, int64_t slots) {
  PlanProblem problem;
  problem.param_class.assign(static_cast<size_t>(chunks), 0);
  problem.grad_class.assign(static_cast<size_t>(chunks), 0);
  problem.fetch_cost.assign(static_cast<size_t>(chunks), 1);
  problem.survives_step.assign(static_cast<size_t>(chunks), false);
  problem.slots = {slots};
  return problem;
}

double CostOf(const PlanProblem& problem, const Plan& plan) {
  const std::vector<double> costs = StepFetchCosts(problem, plan);
  return std::accumulate(costs.begin(), costs.end(), 0.0);
}

void NothingSurvives(PlanProblem* problem) {
  problem->survives_step.assign(problem->survives_step.size(), false);
}

TEST(ExactPolicyTest, EmptyTraceNeedsNothing) {
  const Result<ExactPlan> exact = PlanExact({}, OneClass(3, 2));
  ASSERT_THAT(exact, IsOk());
  EXPECT_THAT(exact->plan.moves, IsEmpty());
  EXPECT_EQ(exact->certificate.cost, 0);
  EXPECT_TRUE(exact->certificate.optimal);
  EXPECT_THAT(exact->certificate.classes, SizeIs(1));
}

TEST(ExactPolicyTest, IsCheaperWhereDistanceOverCostMisjudges) {
  // At the use of 2 there are copies of 0, used 8 moments later at a cost of 3,
  // and of 1, used 2 moments later at a cost of 1: the rule drops 0.
  const Trace trace = Uses({0, 1, 2, 1, 3, 4, 0});
  PlanProblem problem = OneClass(5, 2);
  problem.fetch_cost = {3, 1, 1, 1, 1};
  const Result<ExactPlan> exact = PlanExact(trace, problem);
  ASSERT_THAT(exact, IsOk());
  EXPECT_EQ(exact->certificate.cost, 3 + 1 + 1 + 1 + 1 + 1);
  EXPECT_TRUE(exact->certificate.optimal);
  EXPECT_EQ(exact->certificate.cost, CheapestStep(trace, problem));
  EXPECT_EQ(CostOf(problem, *PlanNextUse(trace, problem)),
            3 + 1 + 1 + 1 + 1 + 3);
}

TEST(ExactPolicyTest, FrozenCopiesStayAcrossTheStep) {
  PlanProblem problem = OneClass(3, 3);
  problem.survives_step.assign(3, true);
  const Result<ExactPlan> exact = PlanExact(Uses({0, 1, 2, 1, 0}), problem);
  ASSERT_THAT(exact, IsOk());
  EXPECT_THAT(exact->plan.initial, SizeIs(3));
  EXPECT_THAT(exact->plan.moves, IsEmpty());
  EXPECT_EQ(exact->certificate.cost, 0);
  EXPECT_TRUE(exact->certificate.optimal);
}

TEST(ExactPolicyTest, TheSlotsPriceBoundsWhatOneMoreSavesAndOneLessCosts) {
  // One slot beyond what is used: copies of cost 2, 1 and 1 want it.
  const Trace trace = Uses({0, 1, 2, 3, 2, 1, 0});
  PlanProblem problem = OneClass(4, 2);
  problem.fetch_cost = {2, 1, 1, 1};
  const Result<ExactPlan> exact = PlanExact(trace, problem);
  ASSERT_THAT(exact, IsOk());
  const std::vector<double>& price = exact->certificate.classes[0].slot_price;
  ASSERT_THAT(price, SizeIs(trace.size()));
  const double slot = std::accumulate(price.begin(), price.end(), 0.0);
  EXPECT_GE(slot, 1);
  EXPECT_LE(slot, 2);
  const double cost = exact->certificate.cost;
  problem.slots = {3};
  EXPECT_EQ(PlanExact(trace, problem)->certificate.cost, cost - 1);
  problem.slots = {1};
  EXPECT_EQ(PlanExact(trace, problem)->certificate.cost, cost + 2);
}

TEST(ExactPolicyTest, OfEqualCopiesItKeepsTheOneUsedAgainFirst) {
  const Trace trace = Uses({0, 1, 2, 3, 4, 4, 3, 2, 1, 0});
  const Result<ExactPlan> exact = PlanExact(trace, OneClass(5, 3));
  ASSERT_THAT(exact, IsOk());
  std::vector<int> fetched;
  for (const Move& move : exact->plan.moves) {
    if (move.kind == MoveKind::kGather) fetched.push_back(move.chunk.value());
  }
  EXPECT_THAT(fetched, ElementsAre(0, 1, 2, 3, 4, 1, 0));
}

TEST(ExactPolicyTest, EqualsTryingEverythingOverOnePass) {
  std::mt19937_64 random(TestSeed(20261121));
  for (int round = 0; round < 2000; ++round) {
    // Few have ten chunks: trying everything takes its time.
    const int chunks =
        1 + static_cast<int>(random() % (round % 16 == 0 ? 10 : 6));
    RandomCase c =
        MakeRandomCase(random, chunks, static_cast<int>(random() % 60),
                       static_cast<int64_t>(random() % 4), random() % 2 == 0);
    NothingSurvives(&c.problem);
    if (random() % 2 == 0) AddRandomLeases(random, &c);
    const Result<ExactPlan> exact = PlanExact(c.trace, c.problem);
    ASSERT_THAT(exact, IsOk()) << "round " << round;
    ASSERT_THAT(ValidatePlan(c.trace, c.problem, exact->plan), IsOk())
        << "round " << round;
    const PlanCertificate& proof = exact->certificate;
    ASSERT_TRUE(proof.optimal) << "round " << round;
    ASSERT_EQ(proof.cost, CostOf(c.problem, exact->plan));
    ASSERT_EQ(proof.cost, proof.lower_bound) << "round " << round;
    ASSERT_EQ(proof.cost, CheapestStep(c.trace, c.problem))
        << "round " << round;
    ASSERT_EQ(exact->plan, PlanExact(c.trace, c.problem)->plan);
  }
}

TEST(ExactPolicyTest, AcrossStepsTheCheapestIsBetweenBoundAndPlan) {
  std::mt19937_64 random(TestSeed(20261122));
  int proved = 0;
  int best = 0;
  int tried = 0;
  for (int round = 0; round < 1000; ++round) {
    RandomCase c =
        MakeRandomCase(random, 1 + static_cast<int>(random() % 6),
                       static_cast<int>(random() % 50),
                       static_cast<int64_t>(random() % 4), random() % 3 == 0);
    for (size_t i = 0; i < c.problem.survives_step.size(); ++i) {
      c.problem.survives_step[i] = random() % 4 != 0;
    }
    if (random() % 2 == 0) AddRandomLeases(random, &c);
    const Result<ExactPlan> exact = PlanExact(c.trace, c.problem);
    ASSERT_THAT(exact, IsOk()) << "round " << round;
    ASSERT_THAT(ValidatePlan(c.trace, c.problem, exact->plan), IsOk())
        << "round " << round;
    const PlanCertificate& proof = exact->certificate;
    const double cheapest = CheapestStep(c.trace, c.problem);
    ASSERT_LE(proof.lower_bound, cheapest) << "round " << round;
    ASSERT_GE(proof.cost, cheapest) << "round " << round;
    ASSERT_EQ(proof.cost, CostOf(c.problem, exact->plan));
    ASSERT_EQ(proof.optimal, proof.cost == proof.lower_bound);
    ASSERT_LE(proof.cost, CostOf(c.problem, *PlanNextUse(c.trace, c.problem)));
    ASSERT_EQ(exact->plan, PlanExact(c.trace, c.problem)->plan);
    ++tried;
    proved += proof.optimal;
    best += proof.cost == cheapest;
  }
  std::cout << "of " << tried << " circles, " << best
            << " have the cheapest plan and " << proved << " its proof"
            << std::endl;
  EXPECT_GT(best, tried * 98 / 100);
  EXPECT_GT(proved, tried * 95 / 100);
}

TEST(ExactPolicyTest, RandomPlansKeepNoCopyThatAGradientIsWrittenOver) {
  std::mt19937_64 random(TestSeed(10));
  for (int round = 0; round < 500; ++round) {
    RandomCase c = MakeRandomCase(random, 1 + static_cast<int>(random() % 10),
                                  static_cast<int>(random() % 80), 0, true);
    PutGradsInPlace(random, &c, static_cast<int64_t>(random() % 4));
    if (random() % 2 == 0) AddRandomLeases(random, &c);
    const Result<ExactPlan> exact = PlanExact(c.trace, c.problem);
    ASSERT_THAT(exact, IsOk()) << "round " << round;
    ASSERT_THAT(ValidatePlan(c.trace, c.problem, exact->plan), IsOk())
        << "round " << round;
    ASSERT_LE(exact->certificate.lower_bound, exact->certificate.cost);
  }
}

TEST(ExactPolicyTest, LargeTracesAreNeverDearerThanByAnyOtherRule) {
  std::mt19937_64 random(TestSeed(8));
  int proved = 0;
  for (int round = 0; round < 40; ++round) {
    RandomCase c = MakeRandomCase(random, 60, 1500, 8, round % 2 == 0);
    if (round % 3 == 0) NothingSurvives(&c.problem);
    if (round % 5 == 0) AddRandomLeases(random, &c);
    const Result<ExactPlan> exact = PlanExact(c.trace, c.problem);
    ASSERT_THAT(exact, IsOk());
    ASSERT_THAT(ValidatePlan(c.trace, c.problem, exact->plan), IsOk());
    const PlanCertificate& proof = exact->certificate;
    ASSERT_TRUE(proof.optimal || round % 3 != 0) << "round " << round;
    ASSERT_LT(proof.gap(), 0.05) << "round " << round;
    proved += proof.optimal;
    ASSERT_LE(proof.cost, CostOf(c.problem, *PlanNextUse(c.trace, c.problem)));
    for (CacheRule rule : {CacheRule::kLeastRecentlyUsed,
                           CacheRule::kFurthestUse, CacheRule::kGemini}) {
      ASSERT_LE(proof.cost, CacheRuleCost(c.trace, c.problem, rule))
          << "round " << round << " rule " << static_cast<int>(rule);
    }
    ASSERT_EQ(exact->plan, PlanExact(c.trace, c.problem)->plan);
  }
  std::cout << "of 40 plans, " << proved << " were proved best" << std::endl;
  EXPECT_GT(proved, 33);
}

TEST(ExactPolicyTest, CostsThatAreNoWholeNumbersAreRoundedWithinTheBound) {
  std::mt19937_64 random(TestSeed(9));
  std::uniform_real_distribution<double> cost(1e-5, 3e-3);
  for (int round = 0; round < 300; ++round) {
    RandomCase c = MakeRandomCase(random, 6, 50, 2, true);
    for (double& of_chunk : c.problem.fetch_cost) of_chunk = cost(random);
    if (round % 2 == 0) NothingSurvives(&c.problem);
    const Result<ExactPlan> exact = PlanExact(c.trace, c.problem);
    ASSERT_THAT(exact, IsOk());
    const double cheapest = CheapestStep(c.trace, c.problem);
    const PlanCertificate& proof = exact->certificate;
    ASSERT_LE(proof.lower_bound, cheapest * (1 + 1e-12)) << "round " << round;
    ASSERT_GE(proof.cost, cheapest * (1 - 1e-12)) << "round " << round;
    ASSERT_TRUE(proof.optimal || round % 2 != 0) << "round " << round;
    ASSERT_TRUE(proof.gap() < 1e-5 || !proof.optimal) << "round " << round;
  }
}

TEST(ExactPolicyTest, PrefetchesAsTheNextUsePolicyDoes) {
  const Trace trace = Uses({0, 1, 2, 3, 4, 5, 6, 7, 7, 6, 5, 4, 3, 2, 1, 0});
  PlanProblem problem = OneClass(8, 4);
  const Plan on_demand = PlanExact(trace, problem)->plan;
  problem.prefetch.depth = 2;
  const Plan ahead = PlanExact(trace, problem)->plan;
  EXPECT_THAT(ahead.initial, SizeIs(2));
  for (const Move& move : ahead.moves) {
    if (move.kind == MoveKind::kGather) {
      EXPECT_EQ(move.cause, RunCause::kPrefetch);
    }
  }
  EXPECT_EQ(CostOf(problem, ahead), CostOf(problem, on_demand));
}

TEST(ExactPolicyTest, RefusesWhatTheNextUsePolicyRefuses) {
  const Access use{AccessKind::kUse, ChunkId(0)};
  const Access end{AccessKind::kUseEnd, ChunkId(0)};
  const Access open{AccessKind::kGradOpen, ChunkId(1)};
  const Access close{AccessKind::kGradClose, ChunkId(1)};
  PlanProblem problem = OneClass(2, 1);
  for (const Trace& trace :
       {Trace{use, open, close, end}, Trace{use, end, end},
        Trace{open, open, close}, Trace{use, end, {AccessKind::kUse, {}}}}) {
    const Status exact = PlanExact(trace, problem).status();
    const Status next_use = PlanNextUse(trace, problem).status();
    EXPECT_FALSE(exact.ok());
    EXPECT_EQ(exact.code(), next_use.code());
    EXPECT_EQ(exact.message(), next_use.message());
  }
  problem.slots_taken = {{0, 1}};
  EXPECT_THAT(PlanExact({use, end}, problem), IsOk());
  problem.slots_taken = {{1, 0}};
  EXPECT_THAT(
      PlanExact({use, end}, problem).status(),
      StatusIs(ErrorCode::kInfeasible, HasSubstr("1 of them on lease")));
  problem.slots_taken = {{0, 1, 0}};
  EXPECT_THAT(
      PlanExact({use, end}, problem).status(),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("for 3 moments")));
  problem.slots_taken = {{0, -1}};
  EXPECT_THAT(PlanExact({use, end}, problem).status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("moment 1")));
  problem.slots_taken = {{}, {}};
  EXPECT_THAT(PlanExact({use, end}, problem).status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("2 classes")));
}

TEST(ExactPolicyTest, RefusesCostsThatAreNoPositiveNumbers) {
  PlanProblem problem = OneClass(2, 2);
  for (double cost : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                      std::numeric_limits<double>::quiet_NaN()}) {
    problem.fetch_cost[1] = cost;
    EXPECT_THAT(
        PlanExact(Uses({0, 1}), problem).status(),
        StatusIs(ErrorCode::kInvalidArgument, HasSubstr("chunk 1 costs")));
  }
}

TEST(ExactPolicyTest, ManySlotsAndNoneAtAllAreLegal) {
  PlanProblem problem = OneClass(2, std::numeric_limits<int32_t>::max());
  problem.slots = {int64_t{1} << 20, 0};
  const Result<ExactPlan> exact = PlanExact(Uses({0, 1, 0}), problem);
  ASSERT_THAT(exact, IsOk());
  EXPECT_EQ(exact->certificate.cost, 2);
  EXPECT_THAT(exact->certificate.classes[1].slot_price, Each(0.0));
}

}  // namespace
}  // namespace castor
