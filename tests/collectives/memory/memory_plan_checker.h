// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_COLLECTIVES_MEMORY_MEMORY_PLAN_CHECKER_H_
#define CASTOR_TESTS_COLLECTIVES_MEMORY_MEMORY_PLAN_CHECKER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/memory/sharding.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "offload/memory/tier_pool.h"
#include "placement/homes/static_policy.h"
#include "placement/placement_rules.h"
#include "placement/plan.h"
#include "placement/run_event.h"

namespace castor {

inline Bytes SumOf(const std::vector<SlotClass>& classes) {
  Bytes sum;
  for (const SlotClass& c : classes) sum += c.slot_bytes * c.slots;
  return sum;
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
      // Its own, or that of larger chunks.
      const Bytes slot =
          plan_.device_classes[static_cast<size_t>(k)].slot_bytes;
      EXPECT_GE(slot, GatheredSize(c));
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
    EXPECT_LE(plan_.problem.prefetch.depth, input_.prefetch.depth);
    EXPECT_GE(plan_.problem.prefetch.depth, 0);
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

}  // namespace castor

#endif  // CASTOR_TESTS_COLLECTIVES_MEMORY_MEMORY_PLAN_CHECKER_H_
