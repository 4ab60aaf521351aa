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
       << plan.problem.prefetch_depth;
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

// The number that follows `words` in `text`.
std::optional<Bytes> NumberAfter(const std::string& text,
                                 const std::string& words) {
  const size_t at = text.find(words);
  if (at == std::string::npos) return std::nullopt;
  return Bytes(std::stoll(text.substr(at + words.size())));
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
    const std::string text(refused.message());
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << text);
    const auto expect_least = [&](auto set, const char* words, int& seen) {
      const std::optional<Bytes> raise = NumberAfter(text, words);
      if (!raise) return;
      ++seen;
      MemoryPlanInput raised = made.input;
      set(raised, *raise);
      const Result<MemoryPlan> fits = PlanMemory(raised);
      ASSERT_THAT(fits, IsOk());
      PlanChecker(raised, *fits).Check();
      raised = made.input;
      set(raised, *raise - Bytes(1));
      ASSERT_FALSE(PlanMemory(raised).ok()) << "a smaller raise serves";
    };
    expect_least([](MemoryPlanInput& i, Bytes b) { i.device_budget += b; },
                 "raise the device budget by ", device);
    expect_least([](MemoryPlanInput& i, Bytes b) { i.host_budget += b; },
                 "raise the host budget by ", host);
    const auto raise_nvme = [](MemoryPlanInput& i, Bytes b) {
      i.nvme_budget = i.nvme_budget.value_or(Bytes(0)) + b;
    };
    expect_least(raise_nvme,
                 made.input.nvme_budget ? "raise the NVMe size by "
                                        : "give an NVMe directory with ",
                 nvme);
    if (made.input.bindings.empty()) {
      ASSERT_NE(text.find("raise the device budget by"), std::string::npos)
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
