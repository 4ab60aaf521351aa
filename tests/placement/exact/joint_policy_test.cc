// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Slots that hold gathered copies or copies of shards: the exact policy on both
// levels.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/exact/exact_policy.h"
#include "placement/planner/plan_validator.h"
#include "placement/policy/next_use_policy.h"
#include "placement/policy/plan_cost.h"
#include "tests/placement/exact/exhaustive_plan.h"
#include "tests/placement/random_trace.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"
#include "tools/bench/support/cache_rules.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Trace Sweeps(int chunks, int micro_batches) {
  Trace trace;
  const auto use = [&](int c) {
    trace.push_back({AccessKind::kUse, ChunkId(c)});
    trace.push_back({AccessKind::kUseEnd, ChunkId(c)});
  };
  for (int m = 0; m < micro_batches; ++m) {
    for (int c = 0; c < chunks; ++c) use(c);
    for (int c = chunks - 1; c >= 0; --c) use(c);
  }
  return trace;
}

// Every fetch costs `shard` for the shard and 1 for the gather.
PlanProblem OneClass(int chunks, int64_t slots, double shard, int64_t per_slot,
                     bool frozen = false) {
  const auto n = static_cast<size_t>(chunks);
  PlanProblem problem;
  problem.param_class.assign(n, 0);
  problem.grad_class.assign(n, 0);
  problem.fetch_cost.assign(n, shard + 1);
  problem.shard_cost.assign(n, shard);
  problem.shards_per_slot = {per_slot};
  problem.survives_step.assign(n, frozen);
  problem.slots = {slots};
  return problem;
}

// Four or five chunks, each used by itself or while another is, in one class of
// a few slots; two or three, of which most are frozen, where it is `cyclic`.
RandomCase RandomUses(std::mt19937_64& random, bool cyclic) {
  const auto pick = [&](uint64_t n) { return static_cast<int>(random() % n); };
  RandomCase made;
  const int chunks = cyclic ? 2 + pick(2) : 4 + pick(2);
  int held = -1;
  const int uses = 6 + pick(14);
  for (int use = 0; use < uses; ++use) {
    const int c = pick(static_cast<uint64_t>(chunks));
    made.trace.push_back({AccessKind::kUse, ChunkId(c)});
    if (held >= 0) made.trace.push_back({AccessKind::kUseEnd, ChunkId(held)});
    held = pick(12) == 0 ? c : -1;
    if (held < 0) made.trace.push_back({AccessKind::kUseEnd, ChunkId(c)});
  }
  if (held >= 0) made.trace.push_back({AccessKind::kUseEnd, ChunkId(held)});
  PlanProblem& problem = made.problem;
  const auto n = static_cast<size_t>(chunks);
  problem.param_class.assign(n, 0);
  problem.grad_class.assign(n, 0);
  for (size_t c = 0; c < n; ++c) {
    problem.fetch_cost.push_back(1 + pick(4));
    problem.survives_step.push_back(cyclic && pick(4) != 0);
  }
  problem.slots = {100};
  problem.slots = {PinnedPeaks(made.trace, problem)[0] +
                   (pick(4) == 0 ? 2 : 1)};
  problem.prefetch.depth = pick(4);
  return made;
}

double CostOf(const PlanProblem& problem, const Plan& plan) {
  const std::vector<double> costs = StepFetchCosts(problem, plan);
  return std::accumulate(costs.begin(), costs.end(), 0.0);
}

int64_t CountOf(const Plan& plan, MoveKind kind) {
  return std::count_if(plan.moves.begin(), plan.moves.end(),
                       [&](const Move& m) { return m.kind == kind; });
}

TEST(JointPolicyTest, ASlotOfShardsSparesMoreThanAGatheredCopy) {
  // Three slots, one of them pinned: two chunks kept whole spare 2 x 3, two
  // slots of three shards 6 x 2 of 7 chunks, whose last is used twice in a row.
  const Trace trace = Sweeps(7, 1);
  const PlanProblem problem = OneClass(7, 3, 2, 3);
  const Result<ExactPlan> exact = PlanExact(trace, problem);
  ASSERT_THAT(exact, IsOk());
  ASSERT_THAT(ValidatePlan(trace, problem, exact->plan), IsOk());
  EXPECT_THAT(exact->plan.shard_slots, ElementsAre(2));
  EXPECT_EQ(exact->certificate.cost, 14 * 3 - 3 - 6 * 2);
  EXPECT_TRUE(exact->certificate.optimal);
  EXPECT_EQ(exact->certificate.classes[0].shard_slots, 2);
  EXPECT_EQ(exact->certificate.classes[0].shard_places, 6);
  EXPECT_EQ(CountOf(exact->plan, MoveKind::kFetchShard), 6);
  EXPECT_EQ(CheapestStep(trace, problem), exact->certificate.cost);
}

TEST(JointPolicyTest, NoSlotHoldsShardsWhereThatSavesNothing) {
  const Trace trace = Sweeps(8, 1);
  for (PlanProblem problem :
       {OneClass(8, 3, 2, 1), OneClass(8, 1, 2, 4), OneClass(8, 8, 2, 4),
        OneClass(8, 3, 0, 4), OneClass(8, 3, 2, 0)}) {
    const Result<ExactPlan> exact = PlanExact(trace, problem);
    ASSERT_THAT(exact, IsOk());
    EXPECT_THAT(exact->plan.shard_slots, IsEmpty());
    EXPECT_TRUE(exact->certificate.optimal);
    problem.shard_cost.clear();
    problem.shards_per_slot.clear();
    EXPECT_EQ(exact->plan, PlanExact(trace, problem)->plan);
  }
}

TEST(JointPolicyTest, FrozenShardsStayFromStepToStep) {
  const Trace trace = Sweeps(4, 1);
  const PlanProblem problem = OneClass(4, 2, 3, 3, true);
  const Result<ExactPlan> exact = PlanExact(trace, problem);
  ASSERT_THAT(exact, IsOk());
  ASSERT_THAT(ValidatePlan(trace, problem, exact->plan), IsOk());
  EXPECT_GT(exact->plan.initial_shards.size(), 0u);
  EXPECT_EQ(exact->certificate.cost, CheapestStep(trace, problem));
  EXPECT_TRUE(exact->certificate.optimal);
}

TEST(JointPolicyTest, FetchingAheadCostsTheSame) {
  const Trace trace = Sweeps(12, 2);
  PlanProblem problem = OneClass(12, 5, 2, 4);
  const ExactPlan on_demand = *PlanExact(trace, problem);
  problem.prefetch.depth = 2;
  const ExactPlan ahead = *PlanExact(trace, problem);
  ASSERT_THAT(ValidatePlan(trace, problem, ahead.plan), IsOk());
  EXPECT_EQ(ahead.certificate.cost, on_demand.certificate.cost);
  EXPECT_GT(ahead.plan.shard_slots.at(0), 0);
  EXPECT_FALSE(ahead.plan.initial.empty());
}

TEST(JointPolicyTest, TheCheapestIsBetweenBoundAndPlan) {
  std::mt19937_64 random(TestSeed(20261123));
  int tried = 0;
  int best = 0;
  int proved = 0;
  int with_shards = 0;
  double worst = 0;
  double sum = 0;
  for (int round = 0; round < 300; ++round) {
    const bool cyclic = round % 3 == 0;
    RandomCase c = RandomUses(random, cyclic);
    AddRandomShards(random, &c.problem);
    if (round % 4 == 0) AddRandomLeases(random, &c);
    const Result<ExactPlan> exact = PlanExact(c.trace, c.problem);
    ASSERT_THAT(exact, IsOk()) << "round " << round;
    ASSERT_THAT(ValidatePlan(c.trace, c.problem, exact->plan), IsOk())
        << "round " << round;
    const PlanCertificate& proof = exact->certificate;
    const double cheapest = CheapestStep(c.trace, c.problem);
    ASSERT_LE(proof.lower_bound, cheapest) << "round " << round;
    ASSERT_GE(proof.cost, cheapest) << "round " << round;
    ASSERT_EQ(proof.cost, CostOf(c.problem, exact->plan)) << "round " << round;
    ASSERT_EQ(proof.optimal, proof.cost == proof.lower_bound)
        << "round " << round;
    ASSERT_EQ(exact->plan, PlanExact(c.trace, c.problem)->plan);
    PlanProblem whole = c.problem;
    whole.shard_cost.clear();
    whole.shards_per_slot.clear();
    ASSERT_LE(proof.cost, PlanExact(c.trace, whole)->certificate.cost);
    ++tried;
    best += proof.cost == cheapest;
    proved += proof.optimal;
    with_shards += !exact->plan.shard_slots.empty();
    if (cheapest == 0) continue;
    worst = std::max(worst, (proof.cost - cheapest) / cheapest);
    sum += (proof.cost - proof.lower_bound) / cheapest;
  }
  std::cout << "of " << tried << " steps, " << with_shards << " keep shards, "
            << best << " have the cheapest plan and " << proved
            << " its proof; the dearest is " << 100 * worst
            << " % above the cheapest, bounds are " << 100 * sum / tried
            << " % below plans on average" << std::endl;
  EXPECT_GT(with_shards, tried / 20);
  EXPECT_GT(best, tried * 95 / 100);
  EXPECT_GT(proved, tried * 85 / 100);
}

TEST(JointPolicyTest, SweepsComeWithinAHundredthOfTheBound) {
  std::vector<double> gaps;
  int number = 0;
  std::cout << "chunks slots shards frozen | split    plan   bound gap % |"
               "   whole     lru  belady  gemini\n";
  for (const bool frozen : {false, true}) {
    for (const int64_t per_slot : {2, 4, 8}) {
      for (const int64_t slots : {4, 8, 20}) {
        for (const int mix : {0, 1, 2}) {
          if (number++ % TestStride() != 0) continue;
          constexpr int kChunks = 40;
          const Trace trace = Sweeps(kChunks, 2);
          PlanProblem problem = OneClass(kChunks, slots, 1, per_slot, frozen);
          for (int i = 0; i < kChunks && mix > 0; ++i) {
            // Every other, or the first half, at home on a slower tier.
            if (mix == 1 ? i % 2 == 0 : i < kChunks / 2) {
              problem.shard_cost[static_cast<size_t>(i)] = 5;
              problem.fetch_cost[static_cast<size_t>(i)] = 6;
            }
          }
          const Result<ExactPlan> exact = PlanExact(trace, problem);
          ASSERT_THAT(exact, IsOk());
          ASSERT_THAT(ValidatePlan(trace, problem, exact->plan), IsOk());
          const PlanCertificate& proof = exact->certificate;
          PlanProblem whole = problem;
          whole.shard_cost.clear();
          whole.shards_per_slot.clear();
          const double alone = PlanExact(trace, whole)->certificate.cost;
          EXPECT_LE(proof.cost, alone);
          gaps.push_back(proof.gap());
          std::cout << std::setw(6) << kChunks << std::setw(6) << slots
                    << std::setw(7) << per_slot << std::setw(7) << frozen
                    << " |" << std::setw(6) << proof.classes[0].shard_slots
                    << std::setw(8) << proof.cost << std::setw(8)
                    << proof.lower_bound << std::setw(6) << std::setprecision(3)
                    << 100 * proof.gap() << " |" << std::setw(8) << alone;
          for (const CacheRule rule :
               {CacheRule::kLeastRecentlyUsed, CacheRule::kFurthestUse,
                CacheRule::kGemini}) {
            const double cost = CacheRuleCost(trace, problem, rule);
            EXPECT_LE(proof.cost, cost);
            std::cout << std::setw(8) << cost;
          }
          std::cout << "\n";
        }
      }
    }
  }
  std::sort(gaps.begin(), gaps.end());
  std::cout << "median gap " << 100 * gaps[gaps.size() / 2] << " %, worst "
            << 100 * gaps.back() << " %" << std::endl;
  EXPECT_LE(gaps[gaps.size() / 2], 0.01);
  EXPECT_LE(gaps.back(), 0.1);
}

TEST(JointPolicyTest, CostsThatAreNoWholeNumbersAreRoundedWithinTheBound) {
  std::mt19937_64 random(TestSeed(10));
  std::uniform_real_distribution<double> cost(1e-5, 3e-3);
  for (int round = 0; round < 100; ++round) {
    RandomCase c = MakeRandomCase(random, 4, 40, 2, false);
    c.problem.survives_step.assign(4, false);
    AddRandomShards(random, &c.problem);
    for (size_t i = 0; i < 4; ++i) {
      c.problem.shard_cost[i] = cost(random);
      c.problem.fetch_cost[i] = c.problem.shard_cost[i] + cost(random);
    }
    const Result<ExactPlan> exact = PlanExact(c.trace, c.problem);
    ASSERT_THAT(exact, IsOk());
    const double cheapest = CheapestStep(c.trace, c.problem);
    const PlanCertificate& proof = exact->certificate;
    ASSERT_LE(proof.lower_bound, cheapest * (1 + 1e-12)) << "round " << round;
    ASSERT_GE(proof.cost, cheapest * (1 - 1e-12)) << "round " << round;
  }
}

TEST(JointPolicyTest, RefusesShardsThatAreNoPartOfTheirFetch) {
  const Trace trace = Sweeps(2, 1);
  for (const double shard : {-1.0, 4.5, std::nan("")}) {
    PlanProblem problem = OneClass(2, 3, 3, 2);
    problem.shard_cost[1] = shard;
    EXPECT_THAT(PlanExact(trace, problem).status(),
                StatusIs(ErrorCode::kInvalidArgument,
                         HasSubstr("of a fetch of chunk 1")));
  }
}

}  // namespace
}  // namespace castor
