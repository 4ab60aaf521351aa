// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Plans of random layouts, budgets, rules and limits, against what a plan must
// be.

#include <cstdint>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/memory/memory_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/memory/tier_pool.h"
#include "placement/homes/static_policy.h"
#include "tests/collectives/memory/memory_plan_checker.h"
#include "tests/collectives/memory/random_memory_input.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

std::string Text(const MemoryPlan& plan) {
  std::ostringstream text;
  for (const auto* classes :
       {&plan.device_classes, &plan.host_classes, &plan.nvme_classes}) {
    for (const SlotClass& c : *classes) {
      text << c.slots << "x" << c.slot_bytes.count() << " ";
    }
    text << "| ";
  }
  for (const auto& states : plan.states) {
    for (const StatePlace& place : states) {
      text << TierName(place.home) << ":" << place.slot_class << ":"
           << place.bytes.count() << " ";
    }
  }
  for (int32_t c : plan.problem.param_class) text << c << " ";
  for (int64_t slots : plan.problem.slots) text << slots << " ";
  text << plan.lease_class << " " << plan.norm_class << " "
       << plan.staging_class << " " << plan.staging_slots << " "
       << plan.problem.prefetch.depth;
  return text.str();
}

TEST(MemoryPlanRandomTest, PlansKeepTheirBudgetsAndPlaceEveryStateOnce) {
  std::mt19937_64 random(TestSeed(41));
  int with_nvme = 0;
  int on_device = 0;
  int on_host = 0;
  for (int round = 0; round < TestRounds(1500); ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const RandomMemoryInput made(random, 40, /*with_rules=*/round % 3 == 0);
    const Result<MemoryPlan> plan = PlanMemory(made.input);
    if (!plan.ok()) {
      ASSERT_EQ(plan.status().code(), ErrorCode::kInfeasible) << plan.status();
      continue;
    }
    PlanChecker(made.input, *plan).Check();
    if (testing::Test::HasFailure()) return;
    ++(!plan->nvme_classes.empty()  ? with_nvme
       : plan->host_classes.empty() ? on_device
                                    : on_host);
    // NVMe only when needed.
    if (!plan->nvme_classes.empty()) {
      MemoryPlanInput without = made.input;
      without.nvme_budget.reset();
      ASSERT_FALSE(PlanMemory(without).ok());
    }
    // All ranks cut alike.
    for (int rank = 1; rank < made.input.sharding.world; ++rank) {
      MemoryPlanInput other = made.input;
      other.sharding.rank = rank;
      ASSERT_EQ(Text(*PlanMemory(other)), Text(*plan));
    }
  }
  EXPECT_GT(with_nvme, TestRounds(50));
  EXPECT_GT(on_device, TestRounds(50));
  EXPECT_GT(on_host, TestRounds(50));
}

TEST(MemoryPlanRandomTest, LimitsAreKeptOrRefused) {
  std::mt19937_64 random(TestSeed(44));
  int kept = 0;
  int refused = 0;
  for (int round = 0; round < TestRounds(600); ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    RandomMemoryInput made(random, 25, /*with_rules=*/round % 2 == 0);
    MemoryPlanInput& input = made.input;
    input.device_budget = input.device_budget * 4;
    input.host_budget = input.host_budget * 4;
    input.limits.emplace();
    const auto limit = [&]() -> std::optional<StateLimit> {
      switch (random() % 3) {
        case 0:
          return Bytes(static_cast<int64_t>(random() % 60'000));
        case 1:
          return static_cast<double>(random() % 101) / 100;
        default:
          return std::nullopt;
      }
    };
    for (StateLimits& of_state : *input.limits) {
      of_state = {limit(), random() % 2 == 0 ? limit() : std::nullopt, {}};
    }
    const Result<MemoryPlan> plan = PlanMemory(input);
    if (!plan.ok()) {
      ++refused;
      ASSERT_EQ(plan.status().code(), ErrorCode::kInfeasible) << plan.status();
      continue;
    }
    ++kept;
    PlanChecker(input, *plan).Check();
    if (testing::Test::HasFailure()) return;
    // Homes do not follow the budgets, and a larger one never fails.
    input.device_budget += Bytes(static_cast<int64_t>(random() % 30'000));
    input.host_budget += Bytes(static_cast<int64_t>(random() % 30'000));
    const Result<MemoryPlan> larger = PlanMemory(input);
    ASSERT_THAT(larger, IsOk());
    ASSERT_EQ(larger->placement.homes, plan->placement.homes);
  }
  EXPECT_GT(kept, TestRounds(50));
  EXPECT_GT(refused, TestRounds(50));
}

TEST(MemoryPlanRandomTest, TheRaisesThatARefusalNamesAreTheSmallestThatFit) {
  std::mt19937_64 random(TestSeed(42));
  int device = 0;
  int host = 0;
  int nvme = 0;
  for (int round = 0; round < TestRounds(1200); ++round) {
    const RandomMemoryInput made(random, 30, /*with_rules=*/round % 3 == 0);
    const Status refused = PlanMemory(made.input).status();
    if (refused.ok()) continue;
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << refused);
    bool device_alone = false;
    for (const BudgetRaise& raise : refused.raises()) {
      const auto raised_by = [&](const BudgetRaise& by) {
        MemoryPlanInput raised = made.input;
        raised.device_budget += by.device;
        raised.host_budget += by.host;
        if (by.nvme > Bytes(0)) {
          raised.nvme_budget = raised.nvme_budget.value_or(Bytes(0)) + by.nvme;
        }
        return raised;
      };
      const MemoryPlanInput enough = raised_by(raise);
      const Result<MemoryPlan> fits = PlanMemory(enough);
      ASSERT_THAT(fits, IsOk());
      PlanChecker(enough, *fits).Check();
      const bool of_device = raise.device > Bytes(0);
      const bool of_host = raise.host > Bytes(0);
      device += of_device;
      host += of_host;
      nvme += raise.nvme > Bytes(0);
      // Of two budgets, less of the one may do with more of the other.
      if (of_device && of_host) continue;
      device_alone = device_alone || of_device;
      BudgetRaise less = raise;
      (of_device ? less.device : of_host ? less.host : less.nvme) -= Bytes(1);
      ASSERT_FALSE(PlanMemory(raised_by(less)).ok())
          << "a smaller raise serves";
    }
    if (made.input.bindings.empty()) {
      ASSERT_TRUE(device_alone)
          << "a device that is large enough always serves";
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(device, TestRounds(50));
  EXPECT_GT(host, TestRounds(50));
  EXPECT_GT(nvme, TestRounds(20));
}

TEST(MemoryPlanRandomTest, ALargerBudgetNeverFailsWhereASmallerOneFits) {
  std::mt19937_64 random(TestSeed(43));
  int changed = 0;
  for (int round = 0; round < TestRounds(400); ++round) {
    RandomMemoryInput made(random, 12, /*with_rules=*/round % 4 == 0);
    MemoryPlanInput& input = made.input;
    bool fits = false;
    for (int raise = 0; raise < 15; ++raise) {
      const bool now = PlanMemory(input).ok();
      ASSERT_TRUE(now || !fits) << "round " << round;
      changed += raise > 0 && now != fits;
      fits = now;
      const Bytes more(static_cast<int64_t>(random() % 30'000));
      switch (random() % 3) {
        case 0:
          input.device_budget += more;
          break;
        case 1:
          input.host_budget += more;
          break;
        case 2:
          input.nvme_budget = input.nvme_budget.value_or(Bytes(0)) + more;
          break;
      }
    }
  }
  EXPECT_GT(changed, TestRounds(100));
}

}  // namespace
}  // namespace castor
