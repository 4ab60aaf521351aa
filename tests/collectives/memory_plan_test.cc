// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory_plan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/chunk_packer.h"
#include "chunk/param_spec.h"
#include "collectives/sharding.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/tier_pool.h"
#include "placement/placement_rules.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/static_policy.h"
#include "tests/collectives/random_memory_input.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// `chunks` chunks of 4 KiB fp32 each, one parameter each.
ChunkLayout PlainLayout(int chunks, int world) {
  std::vector<ParamSpec> specs;
  for (int c = 0; c < chunks; ++c) {
    specs.push_back({"p" + std::to_string(c), {1024}, DType::kF32, true});
  }
  PackOptions pack;
  pack.world = world;
  const Elements sizes[] = {Elements(1024)};
  return *PackChunks(specs, sizes, pack);
}

MemoryPlanInput Plain(const ChunkLayout& layout, int stage, Bytes device,
                      Bytes host, std::optional<Bytes> nvme = std::nullopt) {
  MemoryPlanInput input;
  input.layout = &layout;
  input.sharding = {stage, layout.world(), 0};
  input.device_budget = device;
  input.host_budget = host;
  input.nvme_budget = nvme;
  input.declared.held = {{{ParamId(0)}, {ParamId(0)}}};
  return input;
}

Bytes SumOf(const std::vector<SlotClass>& classes) {
  Bytes sum;
  for (const SlotClass& c : classes) sum += c.slot_bytes * c.slots;
  return sum;
}

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

// And no host memory is taken: Gemini pins copies that nobody uses (D11).
TEST(MemoryPlanTest, EverythingStaysOnTheDeviceWhenItFits) {
  const ChunkLayout layout = PlainLayout(4, 1);
  // Four states of four chunks, and a slot for one gradient.
  const Bytes all = KiB(4) * 16 + KiB(4);
  MemoryPlanInput input = Plain(layout, 3, all, Bytes(0));
  const Result<MemoryPlan> plan = PlanMemory(input);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->home_bytes[TierIndex(Tier::kDevice)], KiB(4) * 16);
  EXPECT_EQ(plan->problem.slots, std::vector<int64_t>{1});
  EXPECT_EQ(plan->problem.param_class, std::vector<int32_t>(4, kNoSlotClass));
  EXPECT_EQ(plan->staging_slots, 0);
  EXPECT_EQ(plan->staging_class, -1);
  EXPECT_TRUE(plan->host_classes.empty());
  input.device_budget -= Bytes(1);
  EXPECT_THAT(PlanMemory(input), Not(IsOk()));
}

TEST(MemoryPlanTest, ShardedParametersOnTheDeviceStillNeedAGatheredSlot) {
  const ChunkLayout layout = PlainLayout(4, 2);
  const Bytes homes = KiB(4) * 4 * 4 / 2;
  const Result<MemoryPlan> plan =
      PlanMemory(Plain(layout, 3, homes + KiB(4) * 2, Bytes(0)));
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->home_bytes[0], homes);
  EXPECT_EQ(plan->problem.param_class, std::vector<int32_t>(4, 0));
  EXPECT_EQ(plan->problem.slots, std::vector<int64_t>{2});
}

TEST(MemoryPlanTest, WhatHomesLeaveOverKeepsMoreCopies) {
  const ChunkLayout layout = PlainLayout(8, 2);
  MemoryPlanInput input = Plain(layout, 3, KiB(4) * 5, MiB(1));
  input.declared.held = {{{ParamId(0)}, {}}};
  const Result<MemoryPlan> plan = PlanMemory(input);
  ASSERT_THAT(plan, IsOk());
  EXPECT_LE(SumOf(plan->device_classes), KiB(4) * 5);
  EXPECT_GT(SumOf(plan->device_classes), KiB(4) * 4);
  EXPECT_GE(plan->problem.slots[0], 1);
}

TEST(MemoryPlanTest, LeasesHaveASlotOfTheirOwn) {
  const ChunkLayout layout = PlainLayout(2, 1);
  MemoryPlanInput input = Plain(layout, 3, MiB(1), MiB(1));
  input.declared.largest_lease = Bytes(1000);
  const Result<MemoryPlan> plan = PlanMemory(input);
  ASSERT_THAT(plan, IsOk());
  ASSERT_GE(plan->lease_class, 1);
  const SlotClass& lease =
      plan->device_classes[static_cast<size_t>(plan->lease_class)];
  EXPECT_EQ(lease.slot_bytes, Bytes(1024));
  EXPECT_EQ(lease.slots, 1);
}

TEST(MemoryPlanTest, TheWordsOfTheNormCountInTheDeviceBudget) {
  const ChunkLayout layout = PlainLayout(4, 1);
  const Bytes all = KiB(4) * 16 + KiB(4);
  MemoryPlanInput input = Plain(layout, 3, all + KiB(1), Bytes(0));
  input.norm_bytes = Bytes(552);
  const Result<MemoryPlan> plan = PlanMemory(input);
  ASSERT_THAT(plan, IsOk());
  ASSERT_GE(plan->norm_class, 1);
  const SlotClass& norm =
      plan->device_classes[static_cast<size_t>(plan->norm_class)];
  EXPECT_EQ(norm.slot_bytes, KiB(1));
  EXPECT_EQ(norm.slots, 1);
  EXPECT_EQ(SumOf(plan->device_classes), input.device_budget);
  input.device_budget -= Bytes(1);
  EXPECT_THAT(PlanMemory(input), Not(IsOk()));
  input = Plain(layout, 3, KiB(4), MiB(1));
  input.norm_bytes = Bytes(552);
  EXPECT_THAT(
      PlanMemory(input).status(),
      StatusIs(ErrorCode::kInfeasible, HasSubstr("1024 bytes for the norm, ")));
}

TEST(MemoryPlanTest, LeasesWithoutMeaningAreRefused) {
  const ChunkLayout layout = PlainLayout(2, 1);
  MemoryPlanInput input = Plain(layout, 3, MiB(1), MiB(1));
  for (Bytes lease : {Bytes(-1), Bytes(std::numeric_limits<int64_t>::max())}) {
    input.declared.largest_lease = lease;
    EXPECT_THAT(PlanMemory(input).status(),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("lease")));
  }
}

TEST(MemoryPlanTest, AModelWithoutElementsNeedsRoomForLeasesOnly) {
  const ChunkLayout layout = *PackChunks({}, std::span<const Elements>(), {});
  MemoryPlanInput input = Plain(layout, 3, KiB(1), Bytes(0));
  input.declared = {};
  ASSERT_THAT(PlanMemory(input), IsOk());
  EXPECT_TRUE(PlanMemory(input)->device_classes.empty());
  input.declared.largest_lease = KiB(1);
  EXPECT_EQ(PlanMemory(input)->lease_class, 0);
  input.declared.largest_lease = KiB(1) + Bytes(1);
  EXPECT_THAT(PlanMemory(input).status(),
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("raise the device budget by 512 bytes")));
}

TEST(MemoryPlanTest, RefusalsSayWhatIsHeldAndWhatIsMissing) {
  const ChunkLayout layout = PlainLayout(8, 2);
  MemoryPlanInput input = Plain(layout, 3, KiB(7), MiB(1));
  input.declared.largest_lease = KiB(2);
  EXPECT_THAT(
      PlanMemory(input).status(),
      StatusIs(ErrorCode::kInfeasible,
               AllOf(HasSubstr("device budget of 7168 bytes cannot hold"),
                     HasSubstr("2 gathered slots of 4096 bytes, 2048 bytes on "
                               "lease, 10240 bytes in all"),
                     HasSubstr("raise the device budget by 3072 bytes;"))));
  // 32 shards of 2 KiB, each of which takes 4 KiB off the device.
  input = Plain(layout, 3, KiB(8), KiB(40));
  EXPECT_THAT(PlanMemory(input).status(),
              StatusIs(ErrorCode::kInfeasible,
                       AllOf(HasSubstr("131072 bytes of states do not fit"),
                             HasSubstr("there is no NVMe directory"),
                             HasSubstr("raise the host budget by"),
                             HasSubstr("give an NVMe directory with"))));
  input.nvme_budget = KiB(4);
  EXPECT_THAT(PlanMemory(input).status(),
              StatusIs(ErrorCode::kInfeasible,
                       AllOf(HasSubstr("NVMe may hold 4096 bytes"),
                             HasSubstr("raise the NVMe size by"))));
}

// What a plan must be, worked out apart from how it is made.
class PlanChecker {
 public:
  PlanChecker(const MemoryPlanInput& input, const MemoryPlan& plan)
      : input_(input), layout_(*input.layout), plan_(plan) {}

  void Check() {
    CheckBudgets();
    CheckGatheredClasses();
    CheckPlaces();
    CheckWhatWasAsked();
    CheckProblem();
    CheckNeed();
  }

 private:
  size_t chunks() const { return layout_.chunks().size(); }
  const GroupInfo& Group(size_t c) const {
    return layout_.groups()[static_cast<size_t>(layout_.chunks()[c].group)];
  }
  Bytes GatheredSize(size_t c) const {
    return RoundUp(BytesOf(layout_.chunks()[c].size, Group(c).dtype),
                   Bytes(512));
  }
  bool Direct(size_t c) const {
    return input_.sharding.replicated(StateKind::kParam) &&
           plan_.states[c][0].home == Tier::kDevice;
  }

  void CheckBudgets() {
    EXPECT_LE(SumOf(plan_.device_classes), input_.device_budget);
    EXPECT_LE(SumOf(plan_.host_classes), input_.host_budget);
    EXPECT_LE(SumOf(plan_.nvme_classes), input_.nvme_budget.value_or(Bytes(0)));
  }

  void CheckGatheredClasses() {
    const std::vector<int64_t>& slots = plan_.problem.slots;
    ASSERT_LE(slots.size(), plan_.device_classes.size());
    std::set<int64_t> sizes;
    for (size_t k = 0; k < slots.size(); ++k) {
      EXPECT_EQ(plan_.device_classes[k].slots, slots[k]);
      EXPECT_TRUE(
          sizes.insert(plan_.device_classes[k].slot_bytes.count()).second);
    }
    for (size_t c = 0; c < chunks(); ++c) {
      const int32_t k = plan_.problem.grad_class[c];
      EXPECT_EQ(plan_.device_classes[static_cast<size_t>(k)].slot_bytes,
                GatheredSize(c));
    }
  }

  // What rules bind is there; of what is limited there is no more.
  void CheckWhatWasAsked() {
    for (size_t c = 0; c < input_.bindings.size(); ++c) {
      for (size_t k = 0; k < kStateKinds; ++k) {
        const StateBinding& binding = input_.bindings[c][k];
        if (binding.rule < 0 || plan_.states[c][k].bytes == Bytes(0)) continue;
        EXPECT_EQ(plan_.states[c][k].home, binding.tier);
      }
    }
    std::array<Bytes, 3> sums;
    for (size_t k = 0; k < kStateKinds; ++k) {
      for (Tier tier : kAllTiers) {
        const size_t t = TierIndex(tier);
        sums[t] += plan_.placement.bytes[k][t];
        if (!input_.limits) continue;
        const StateLimits& of_state = (*input_.limits)[k];
        const std::optional<StateLimit>& limit =
            tier == Tier::kDevice ? of_state.device
            : tier == Tier::kHost ? of_state.host
                                  : of_state.nvme;
        if (!limit || !std::holds_alternative<Bytes>(*limit)) continue;
        EXPECT_LE(plan_.placement.bytes[k][t], std::get<Bytes>(*limit));
      }
    }
    EXPECT_EQ(sums, plan_.home_bytes);
  }

  void CheckPlaces() {
    // Slots of every class are accounted for, by what they are for.
    std::array<std::map<int32_t, int64_t>, 3> used;
    std::array<Bytes, 3> home_bytes;
    ASSERT_EQ(plan_.states.size(), chunks());
    Bytes largest;
    for (size_t c = 0; c < chunks(); ++c) {
      for (int k = 0; k < kStateKinds; ++k) {
        const auto state = static_cast<StateKind>(k);
        const StatePlace& place = plan_.states[c][static_cast<size_t>(k)];
        if (!input_.sharding.exists(state, Group(c))) {
          EXPECT_EQ(place.bytes, Bytes(0));
          EXPECT_EQ(place.slot_class, -1);
          continue;
        }
        const Elements kept =
            layout_.chunks()[c].size /
            (input_.sharding.replicated(state) ? 1 : input_.sharding.world);
        EXPECT_EQ(place.bytes,
                  BytesOf(kept, input_.sharding.dtype(state, Group(c))));
        const std::vector<SlotClass>& classes = ClassesOf(place.home);
        ASSERT_GE(place.slot_class, 0);
        ASSERT_LT(place.slot_class, static_cast<int64_t>(classes.size()));
        const Bytes slot =
            classes[static_cast<size_t>(place.slot_class)].slot_bytes;
        const Bytes unit = place.home == Tier::kDevice ? Bytes(512) : KiB(4);
        EXPECT_EQ(slot, RoundUp(place.bytes, unit));
        ++used[TierIndex(place.home)][place.slot_class];
        home_bytes[TierIndex(place.home)] += slot;
        largest = std::max(largest, RoundUp(place.bytes, KiB(4)));
      }
    }
    EXPECT_EQ(home_bytes, plan_.home_bytes);
    for (size_t k = 0; k < plan_.problem.slots.size(); ++k) {
      used[0][static_cast<int32_t>(k)] += plan_.problem.slots[k];
    }
    if (plan_.lease_class >= 0) ++used[0][plan_.lease_class];
    if (plan_.norm_class >= 0) ++used[0][plan_.norm_class];
    if (plan_.staging_class >= 0) {
      used[1][plan_.staging_class] += plan_.staging_slots;
      EXPECT_GE(plan_.host_classes[static_cast<size_t>(plan_.staging_class)]
                    .slot_bytes,
                largest);
    }
    for (Tier tier : kAllTiers) {
      const std::vector<SlotClass>& classes = ClassesOf(tier);
      for (size_t k = 0; k < classes.size(); ++k) {
        EXPECT_EQ(classes[k].slots,
                  used[TierIndex(tier)][static_cast<int32_t>(k)])
            << TierName(tier) << " class " << k;
      }
    }
    // One update has a window on each state at once, all through staging where
    // the home is NVMe, or the device while others are elsewhere.
    for (size_t c = 0; c < chunks(); ++c) {
      int64_t staged = 0;
      bool on_device = true;
      for (const StatePlace& place : plan_.states[c]) {
        if (place.bytes == Bytes(0)) continue;
        staged += place.home != Tier::kHost;
        on_device = on_device && place.home == Tier::kDevice;
      }
      if (!on_device) {
        EXPECT_LE(staged, plan_.staging_slots);
      }
    }
  }

  void CheckProblem() {
    for (size_t c = 0; c < chunks(); ++c) {
      const int32_t param = plan_.problem.param_class[c];
      EXPECT_EQ(param, Direct(c) ? kNoSlotClass : plan_.problem.grad_class[c]);
      EXPECT_EQ(plan_.problem.survives_step[c], !Group(c).trainable);
      EXPECT_GT(plan_.problem.fetch_cost[c], 0);
    }
    EXPECT_LE(plan_.problem.prefetch_depth, input_.prefetch_depth);
    EXPECT_GE(plan_.problem.prefetch_depth, 0);
    const Bytes lease = input_.declared.largest_lease;
    EXPECT_EQ(plan_.lease_class >= 0, lease > Bytes(0));
    EXPECT_EQ(plan_.norm_class >= 0,
              input_.norm_bytes > Bytes(0) && chunks() > 0);
  }

  // Walks through a micro-batch as it is declared.
  void CheckNeed() {
    std::map<int32_t, int64_t> peak;
    const std::vector<HeldTogether>& held = input_.declared.held;
    std::set<int32_t> open;
    for (size_t m = 0; m < held.size(); ++m) {
      std::map<int32_t, std::set<int32_t>> params;  // by class
      for (ParamId p : held[m].params) {
        const ChunkId chunk = layout_.place(p).chunk;
        if (chunk.valid() && !Direct(chunk.index())) {
          params[Class(chunk)].insert(chunk.value());
        }
      }
      for (ParamId p : held[m].grads) {
        const ChunkId chunk = layout_.place(p).chunk;
        if (chunk.valid()) open.insert(chunk.value());
      }
      std::map<int32_t, int64_t> now;
      for (const auto& [k, ids] : params) {
        now[k] += static_cast<int64_t>(ids.size());
      }
      for (int32_t c : open) ++now[Class(ChunkId(c))];
      for (const auto& [k, count] : now) peak[k] = std::max(peak[k], count);
      // Closed when every parameter of the chunk has been listed for good.
      std::erase_if(open, [&](int32_t c) {
        const std::vector<ParamId>& all = layout_.chunk(ChunkId(c)).params;
        return std::all_of(all.begin(), all.end(), [&](ParamId p) {
          const auto lists = [&](const HeldTogether& h) {
            return std::count(h.grads.begin(), h.grads.end(), p) > 0;
          };
          const auto later = held.begin() + static_cast<std::ptrdiff_t>(m) + 1;
          return std::any_of(held.begin(), later, lists) &&
                 std::none_of(later, held.end(), lists);
        });
      });
    }
    for (const auto& [k, count] : peak) {
      EXPECT_GE(plan_.problem.slots[static_cast<size_t>(k)], count);
    }
    for (size_t c = 0; c < chunks(); ++c) {
      if (Direct(c) && !Group(c).trainable) continue;
      EXPECT_GE(
          plan_.problem.slots[static_cast<size_t>(plan_.problem.grad_class[c])],
          1);
    }
  }
  int32_t Class(ChunkId chunk) const {
    return plan_.problem.grad_class[chunk.index()];
  }

  const std::vector<SlotClass>& ClassesOf(Tier tier) const {
    return tier == Tier::kDevice ? plan_.device_classes
           : tier == Tier::kHost ? plan_.host_classes
                                 : plan_.nvme_classes;
  }

  const MemoryPlanInput& input_;
  const ChunkLayout& layout_;
  const MemoryPlan& plan_;
};

TEST(MemoryPlanTest, RandomPlansKeepTheirBudgetsAndPlaceEveryStateOnce) {
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
  EXPECT_GT(on_device, TestRounds(100));
  EXPECT_GT(on_host, TestRounds(100));
}

TEST(MemoryPlanTest, RandomLimitsAreKeptOrRefused) {
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

TEST(MemoryPlanTest, LimitsThatDoNotFitSayWhichBudgetsAndByHowMuch) {
  const ChunkLayout layout = PlainLayout(8, 1);
  // Parameters whole on the device, the rest in host memory: 32 KiB on the one
  // beside a slot for a gradient, 96 KiB beside staging on the other.
  MemoryPlanInput input = Plain(layout, 3, KiB(36), KiB(96 + 12));
  input.limits.emplace();
  (*input.limits)[0].device = 1.0;
  const Result<MemoryPlan> fits = PlanMemory(input);
  ASSERT_THAT(fits, IsOk());
  EXPECT_EQ(fits->home_bytes,
            (std::array<Bytes, 3>{KiB(32), KiB(96), Bytes()}));
  EXPECT_EQ(fits->problem.prefetch_depth, 0);
  input.device_budget -= Bytes(512);
  input.host_budget -= Bytes(4096);
  EXPECT_THAT(
      PlanMemory(input).status(),
      StatusIs(ErrorCode::kInfeasible,
               AllOf(HasSubstr("device is to be home to 32768 bytes (param "
                               "32768 bytes) beside 4096 bytes for gathered"),
                     HasSubstr("raise the device budget by 512 bytes"),
                     HasSubstr("; and host is to be home to 98304 bytes (grad "
                               "32768 bytes, exp_avg"),
                     HasSubstr("raise the host budget by 4096 bytes"))));
}

// The number that follows `words` in `text`.
std::optional<Bytes> NumberAfter(const std::string& text,
                                 const std::string& words) {
  const size_t at = text.find(words);
  if (at == std::string::npos) return std::nullopt;
  return Bytes(std::stoll(text.substr(at + words.size())));
}

TEST(MemoryPlanTest, TheRaisesThatARefusalNamesAreTheSmallestThatFit) {
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

TEST(MemoryPlanTest, ALargerBudgetNeverFailsWhereASmallerOneFits) {
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
