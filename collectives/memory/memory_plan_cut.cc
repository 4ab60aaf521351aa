// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "collectives/memory/fetch_costs.h"
#include "collectives/memory/memory_plan_needs.h"
#include "collectives/memory/static_homes.h"

namespace castor::internal {
namespace {

size_t Index(StateKind kind) { return static_cast<size_t>(kind); }

// How many shards fit one gathered slot of each class, where copies of them
// may be kept. None are worth it where others bring nothing.
std::vector<int64_t> ShardsPerSlot(const SlotNeeds& needs,
                                   const PlanProblem& problem) {
  const MemoryPlanInput& input = needs.input();
  const ChunkLayout& layout = needs.layout();
  if (problem.shard_cost.empty()) return {};
  std::vector<Bytes> largest(needs.gathered().size());
  for (size_t c = 0; c < needs.slot_class().size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const ShardRange kept =
        input.sharding.kept(StateKind::kParam, layout, chunk);
    Bytes& shard = largest[static_cast<size_t>(needs.slot_class()[c])];
    shard =
        std::max(shard, BytesOf(kept.end - kept.begin, layout.dtype(chunk)));
  }
  std::vector<int64_t> fit;
  for (size_t k = 0; k < needs.gathered().size(); ++k) {
    fit.push_back(largest[k] > Bytes(0)
                      ? needs.gathered()[k].slot_bytes / largest[k]
                      : 0);
  }
  return fit;
}

// Where the states of a chunk lie; their slots are added to the plan's classes.
std::array<StatePlace, kStateKinds> PlacesOf(const SlotNeeds& needs,
                                             ChunkId chunk,
                                             const ChunkHomes& homes,
                                             size_t first_home_class,
                                             MemoryPlan& plan) {
  const MemoryPlanInput& input = needs.input();
  const ChunkLayout& layout = needs.layout();
  const ChunkStates& shape = needs.shapes()[chunk.index()];
  const GroupInfo& group =
      layout.groups()[static_cast<size_t>(layout.chunk(chunk).group)];
  std::array<StatePlace, kStateKinds> places;
  for (int k = 0; k < kStateKinds; ++k) {
    const StateKind state = static_cast<StateKind>(k);
    if (!input.sharding.exists(state, group)) continue;
    StatePlace& place = places[Index(state)];
    const ShardRange kept = input.sharding.kept(state, layout, chunk);
    place.bytes =
        BytesOf(kept.end - kept.begin, input.sharding.dtype(state, group));
    place.home = homes[Index(state)];
    switch (place.home) {
      case Tier::kDevice:
        place.slot_class = AddSlots(plan.device_classes, first_home_class,
                                    shape.device_bytes[Index(state)], 1);
        break;
      case Tier::kHost:
        place.slot_class =
            AddSlots(plan.host_classes, 0, shape.host_bytes[Index(state)], 1);
        break;
      case Tier::kNvme:
        place.slot_class =
            AddSlots(plan.nvme_classes, 0, shape.host_bytes[Index(state)], 1);
        break;
    }
  }
  return places;
}

// Where new states of one chunk go while an update is a guess.
struct Spares {
  struct Place {
    StateKind state;
    Tier tier;
    Bytes bytes;
  };
  std::vector<Place> places;  // empty: the chunk is not guessed
  std::array<Bytes, 3> takes;
};

// `homes_tier`: where states at home in host memory have their spare places.
Spares SparesOf(const SlotNeeds& needs, const MemoryPlan& plan, size_t chunk,
                Tier homes_tier) {
  Spares spares;
  bool on_host = false;
  for (size_t k = 0; k < kStateKinds; ++k) {
    const StatePlace& place = plan.states[chunk][k];
    const StateKind state = static_cast<StateKind>(k);
    if (place.bytes == Bytes(0)) continue;
    on_host |= place.home != Tier::kDevice;
    if (state == StateKind::kGrad) continue;
    const Tier tier = place.home == Tier::kDevice ? Tier::kHost
                      : place.home == Tier::kHost ? homes_tier
                                                  : Tier::kNvme;
    const Bytes bytes = needs.shapes()[chunk].host_bytes[k];
    spares.places.push_back({state, tier, bytes});
    spares.takes[TierIndex(tier)] += bytes;
  }
  return needs.trainable(chunk) && on_host ? spares : Spares();
}

// Adds spare places of states that updates in host memory write, for as many
// chunks as budgets leave room for: of the last chunks first, whose gradients
// come first. Beside full host memory the spare place of a state is on NVMe.
void AddSparePlaces(const SlotNeeds& needs, Bytes staging, MemoryPlan& plan) {
  const MemoryPlanInput& input = needs.input();
  std::array<Bytes, 3> left;
  left[1] = input.host_budget - staging - SlotsBytes(plan.host_classes);
  if (input.nvme_budget) {
    left[2] = *input.nvme_budget - SlotsBytes(plan.nvme_classes);
  }
  const auto classes = [&](Tier tier) -> std::vector<SlotClass>& {
    return tier == Tier::kNvme ? plan.nvme_classes : plan.host_classes;
  };
  const auto fits = [&](const Spares& spares) {
    return spares.takes[1] <= left[1] && spares.takes[2] <= left[2];
  };
  for (size_t c = plan.states.size(); c-- > 0;) {
    Spares spares = SparesOf(needs, plan, c, Tier::kHost);
    if (!fits(spares)) spares = SparesOf(needs, plan, c, Tier::kNvme);
    // One large chunk does not keep others from theirs.
    if (!fits(spares)) continue;
    for (const Spares::Place& place : spares.places) {
      AddSlots(classes(place.tier), 0, place.bytes, 1);
      left[TierIndex(place.tier)] -= place.bytes;
      plan.spare_bytes[TierIndex(place.tier)] += place.bytes;
    }
  }
  // Which chunk takes a place is found out when its gradient is there.
  const auto class_of = [&](const Spares::Place& place) -> int32_t {
    const std::vector<SlotClass>& those = classes(place.tier);
    for (size_t k = 0; k < those.size(); ++k) {
      if (those[k].slot_bytes == place.bytes) return static_cast<int32_t>(k);
    }
    return -1;
  };
  for (size_t c = 0; c < plan.states.size(); ++c) {
    for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
      for (const Spares::Place& place : SparesOf(needs, plan, c, tier).places) {
        StatePlace& state = plan.states[c][Index(place.state)];
        (place.tier == Tier::kHost ? state.host_spare_class
                                   : state.nvme_spare_class) = class_of(place);
      }
    }
  }
}

}  // namespace

MemoryPlan CutIntoSlots(const SlotNeeds& needs,
                        const std::vector<ChunkHomes>& homes,
                        StagingSlots staging, int depth) {
  const MemoryPlanInput& input = needs.input();
  const ChunkLayout& layout = needs.layout();
  const std::vector<bool> direct = needs.Direct(homes);
  MemoryPlan plan;
  plan.home_bytes = HomeBytes(needs.shapes(), homes);
  plan.placement = PlacementOf(needs.shapes(), input.sharding.states, homes);
  std::vector<int64_t> slots = needs.Slots(direct);
  plan.needed_slots = slots;
  // What homes leave over keeps more copies, or fetches ahead alone; more than
  // one per chunk and gradient would never be filled.
  const size_t main = needs.main_class();
  Bytes left = input.device_budget - plan.home_bytes[0] - needs.lease_bytes() -
               needs.norm_bytes() - needs.GatheredBytes(slots);
  int64_t useful = 0;
  for (size_t c = 0; c < homes.size(); ++c) {
    useful += static_cast<size_t>(needs.slot_class()[c]) == main && !direct[c];
    useful += static_cast<size_t>(needs.grad_class()[c]) == main &&
              needs.has_grad(c) && !input.grads_in_place;
  }
  int64_t more = std::max<int64_t>(useful - slots[main], 0);
  if (!input.keep_copies) more = std::min<int64_t>(more, depth);
  slots[main] +=
      std::clamp<int64_t>(left / needs.gathered()[main].slot_bytes, 0, more);

  plan.device_classes = needs.gathered();
  for (size_t c = 0; c < slots.size(); ++c) {
    plan.device_classes[c].slots = slots[c];
  }
  const size_t first_home_class = plan.device_classes.size();
  plan.problem.slots = slots;
  plan.problem.prefetch = {input.prefetch.mode, depth};
  plan.problem.step_compute_ns = input.step_compute_ns;
  FetchCosts costs = FetchCostsOf(layout, input.sharding, homes, input.machine);
  plan.problem.fetch_cost = std::move(costs.cost);
  plan.problem.shard_cost = std::move(costs.shard_cost);
  plan.problem.shards_per_slot = ShardsPerSlot(needs, plan.problem);
  plan.problem.cost_unit = costs.unit;
  plan.problem.fetch_ns = std::move(costs.legs);
  plan.unknown_links = std::move(costs.unknown);
  plan.problem.param_class.reserve(homes.size());
  plan.problem.grad_class.reserve(homes.size());
  plan.problem.survives_step.reserve(homes.size());
  plan.problem.used_bytes.reserve(homes.size());
  plan.states.reserve(homes.size());
  for (size_t c = 0; c < homes.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    plan.problem.param_class.push_back(direct[c] ? kNoSlotClass
                                                 : needs.slot_class()[c]);
    plan.problem.grad_class.push_back(input.grads_in_place && needs.trainable(c)
                                          ? kNoSlotClass
                                          : needs.grad_class()[c]);
    plan.problem.survives_step.push_back(!needs.trainable(c));
    plan.problem.used_bytes.push_back(
        BytesOf(layout.chunk(chunk).size, layout.dtype(chunk)));
    plan.states.push_back(
        PlacesOf(needs, chunk, homes[c], first_home_class, plan));
  }
  if (needs.lease_bytes() > Bytes(0)) {
    plan.lease_class = static_cast<int32_t>(plan.device_classes.size());
    plan.device_classes.push_back({needs.lease_bytes(), 1});
  }
  if (needs.norm_bytes() > Bytes(0)) {
    plan.norm_class = static_cast<int32_t>(plan.device_classes.size());
    plan.device_classes.push_back({needs.norm_bytes(), 1});
  }
  if (input.spare_places) {
    AddSparePlaces(needs, staging.slot_bytes * staging.slots, plan);
  }
  if (staging.slots > 0) {
    plan.staging_class = static_cast<int32_t>(plan.host_classes.size());
    plan.host_classes.push_back({staging.slot_bytes, staging.slots});
    plan.staging_slots = staging.slots;
    plan.fetch_slots = staging.fetch_slots;
  }
  plan.piece = needs.piece();
  return plan;
}

}  // namespace castor::internal
