// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/units_text.h"
#include "collectives/internal/chunk_states.h"
#include "collectives/internal/fetch_costs.h"
#include "collectives/internal/gathered_need.h"
#include "collectives/internal/memory_demand.h"
#include "collectives/internal/static_homes.h"
#include "placement/home_policy.h"

namespace castor {
namespace {

using internal::kDeviceAlign;

size_t Index(StateKind kind) { return static_cast<size_t>(kind); }

// Adds slots of one size to a pool's classes; returns the class.
int32_t AddSlots(std::vector<SlotClass>& classes, size_t first, Bytes size,
                 int64_t slots) {
  for (size_t c = first; c < classes.size(); ++c) {
    if (classes[c].slot_bytes == size) {
      classes[c].slots += slots;
      return static_cast<int32_t>(c);
    }
  }
  classes.push_back({size, slots});
  return static_cast<int32_t>(classes.size()) - 1;
}

class Builder {
 public:
  explicit Builder(const MemoryPlanInput& input)
      : input_(input), layout_(*input.layout) {
    const size_t chunks = layout_.chunks().size();
    for (size_t c = 0; c < chunks; ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      const Bytes size =
          RoundUp(BytesOf(layout_.chunk(chunk).size, layout_.dtype(chunk)),
                  kDeviceAlign);
      slot_class_.push_back(AddSlots(gathered_, 0, size, 0));
      ++chunks_in_class_[slot_class_.back()];
      shapes_.push_back(internal::StatesOf(layout_, input_.sharding, chunk));
    }
    // Behind those of parameters, where they have sizes of their own.
    for (size_t c = 0; c < chunks; ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      grad_class_.push_back(Trainable(c)
                                ? AddSlots(gathered_, 0, GradBytes(chunk), 0)
                                : slot_class_[c]);
    }
    demand_.chunks = shapes_;
    ruled_ =
        internal::TakeRuled(input_.bindings, input_.nvme_budget.has_value(),
                            demand_.chunks, demand_.ruled);
    const bool whole = input_.sharding.replicated(StateKind::kParam);
    need_ = Need(std::vector<bool>());
    demand_.serving = GatheredBytes(need_) + LeaseBytes() + NormBytes();
    demand_.all_on_device =
        GatheredBytes(Need(std::vector<bool>(chunks, whole))) + LeaseBytes() +
        NormBytes() + demand_.ruled[0];
    for (const ChunkStates& shape : demand_.chunks) {
      for (Bytes bytes : shape.device_bytes) demand_.all_on_device += bytes;
    }
    for (const ChunkStates& shape : shapes_) {
      for (Bytes bytes : shape.host_bytes) {
        demand_.staging_slot = std::max(demand_.staging_slot, bytes);
      }
    }
  }

  BudgetRaises SmallestRaises() const {
    const internal::Budgets budgets = Given();
    // What was asked of homes is kept, whatever the budgets.
    if (input_.limits || !ruled_.ok() || demand_.FitsInto(budgets)) return {};
    return demand_.SmallestRaises(budgets);
  }

  Result<MemoryPlan> Build() const {
    const internal::Budgets budgets = Given();
    if (input_.limits) return BuildAsAsked(budgets);
    CASTOR_RETURN_IF_ERROR(ruled_);
    // Everything on the device, if it fits: then whole states are used where
    // they are.
    if (demand_.FitsOnDevice(budgets.device)) {
      ChunkHomes on_device;
      on_device.fill(Tier::kDevice);
      return Finish(std::vector<ChunkHomes>(slot_class_.size(), on_device), 0,
                    input_.prefetch_depth);
    }
    for (const internal::HostScheme& scheme :
         internal::HostSchemes(budgets, demand_.mixed())) {
      for (int depth = input_.prefetch_depth; depth >= 0; --depth) {
        std::optional<HomeProblem> problem = demand_.Homes(
            budgets, scheme, gathered_[MainClass()].slot_bytes * depth);
        if (!problem) continue;
        if (input_.machine) {
          problem->nvme_read = input_.machine->nvme_read;
          problem->nvme_write = input_.machine->nvme_write;
        }
        Result<std::vector<ChunkHomes>> homes = AssignHomes(*problem);
        if (!homes.ok()) continue;
        internal::ApplyRuled(input_.bindings, shapes_, *homes);
        return Finish(*homes, scheme.staging_slots, depth);
      }
    }
    return Infeasible(fmt::format(
        "{}{}; {}; smaller chunks, or fewer parameters held at once, need less",
        WhyNot(budgets), WhatRulesTake(), demand_.RaisesText(budgets)));
  }

 private:
  internal::Budgets Given() const {
    return {input_.device_budget, input_.host_budget, input_.nvme_budget};
  }

  // Homes by limits, which budgets hold or do not.
  Result<MemoryPlan> BuildAsAsked(const internal::Budgets& budgets) const {
    CASTOR_ASSIGN_OR_RETURN(
        const StaticPlacement placement,
        internal::PlaceAsAsked(shapes_, *input_.limits, input_.bindings,
                               budgets.nvme.has_value()));
    internal::WorkingSet work;
    work.serving = GatheredBytes(Need(Direct(placement.homes))) + LeaseBytes() +
                   NormBytes();
    work.slot_ahead = gathered_[MainClass()].slot_bytes;
    work.most_ahead = input_.prefetch_depth;
    work.staging_slot = demand_.staging_slot;
    CASTOR_ASSIGN_OR_RETURN(
        const internal::WorkingRoom room,
        internal::FitBesideHomes(shapes_, placement, work, budgets));
    return Finish(placement.homes, room.staging_slots, room.ahead);
  }

  // Whole parameters at home on the device are used where they are.
  std::vector<bool> Direct(const std::vector<ChunkHomes>& homes) const {
    std::vector<bool> direct;
    for (const ChunkHomes& of_chunk : homes) {
      direct.push_back(input_.sharding.replicated(StateKind::kParam) &&
                       of_chunk[Index(StateKind::kParam)] == Tier::kDevice);
    }
    return direct;
  }

  std::string WhyNot(const internal::Budgets& budgets) const {
    if (demand_.serving > budgets.device) {
      std::string held;
      for (size_t c = 0; c < gathered_.size(); ++c) {
        if (need_[c] == 0) continue;
        held += fmt::format("{} gathered slots of {}, ", need_[c],
                            FormatBytes(gathered_[c].slot_bytes));
      }
      if (LeaseBytes() > Bytes(0)) {
        held += fmt::format("{} on lease, ", FormatBytes(LeaseBytes()));
      }
      if (NormBytes() > Bytes(0)) {
        held += fmt::format("{} for the norm, ", FormatBytes(NormBytes()));
      }
      return fmt::format(
          "the device budget of {} cannot hold what the step holds at once: "
          "{}{} in all",
          FormatBytes(budgets.device), held, FormatBytes(demand_.serving));
    }
    Bytes states;
    for (const ChunkStates& shape : demand_.chunks) {
      for (Bytes bytes : shape.host_bytes) states += bytes;
    }
    const int64_t staging = internal::HostSchemes(budgets).back().staging_slots;
    return fmt::format(
        "{} do not fit: of the device budget of {}, {} serve "
        "gathered chunks and leases, of the host budget of {}, {} serve "
        "staging, {}",
        states > Bytes(0) ? FormatBytes(states) + " of states"
                          : std::string("the states, placed by rules,"),
        FormatBytes(budgets.device), FormatBytes(demand_.serving),
        FormatBytes(budgets.host), FormatBytes(demand_.staging_slot * staging),
        budgets.nvme
            ? fmt::format("and NVMe may hold {}", FormatBytes(*budgets.nvme))
            : std::string("and there is no NVMe directory"));
  }

  std::string WhatRulesTake() const {
    if (!demand_.mixed()) return "";
    return fmt::format(
        "; besides, rules put {} on the device, {} on the host and {} on NVMe",
        FormatBytes(demand_.ruled[0]), FormatBytes(demand_.ruled[1]),
        FormatBytes(demand_.ruled[2]));
  }

  Bytes LeaseBytes() const {
    return RoundUp(input_.declared.largest_lease, kDeviceAlign);
  }
  Bytes NormBytes() const { return RoundUp(input_.norm_bytes, kDeviceAlign); }

  Bytes GatheredBytes(const std::vector<int64_t>& slots) const {
    Bytes sum;
    for (size_t c = 0; c < gathered_.size(); ++c) {
      sum += gathered_[c].slot_bytes * slots[c];
    }
    return sum;
  }

  std::vector<int64_t> Need(const std::vector<bool>& direct) const {
    return internal::GatheredNeed(layout_, slot_class_, input_.declared.held,
                                  direct, grad_class_, input_.whole_grads,
                                  input_.grads_in_place);
  }

  // Of a chunk's whole gradient.
  Bytes GradBytes(ChunkId chunk) const {
    const ChunkInfo& info = layout_.chunk(chunk);
    const GroupInfo& group = layout_.groups()[static_cast<size_t>(info.group)];
    return RoundUp(
        BytesOf(info.size, input_.sharding.dtype(StateKind::kGrad, group)),
        kDeviceAlign);
  }

  bool Trainable(size_t chunk) const {
    return shapes_[chunk].device_bytes[Index(StateKind::kGrad)] > Bytes(0);
  }

  // The class with the most chunks: the one worth prefetching.
  size_t MainClass() const {
    size_t main = 0;
    for (const auto& [slot_class, chunks] : chunks_in_class_) {
      if (chunks > chunks_in_class_.at(static_cast<int32_t>(main))) {
        main = static_cast<size_t>(slot_class);
      }
    }
    return main;
  }

  Result<MemoryPlan> Finish(const std::vector<ChunkHomes>& homes,
                            int64_t staging, int depth) const {
    const std::vector<bool> direct = Direct(homes);
    MemoryPlan plan;
    plan.home_bytes = HomeBytes(shapes_, homes);
    plan.placement = internal::PlacementOf(shapes_, homes);
    std::vector<int64_t> slots = Need(direct);
    plan.needed_slots = slots;
    // What homes leave over keeps more copies; more than one per chunk and
    // gradient would never be filled.
    const size_t main = MainClass();
    Bytes left = input_.device_budget - plan.home_bytes[0] - LeaseBytes() -
                 NormBytes() - GatheredBytes(slots);
    int64_t useful = 0;
    for (size_t c = 0; c < homes.size(); ++c) {
      useful += static_cast<size_t>(slot_class_[c]) == main && !direct[c];
      useful += static_cast<size_t>(grad_class_[c]) == main && Trainable(c) &&
                !input_.grads_in_place;
    }
    slots[main] +=
        std::clamp<int64_t>(left / gathered_[main].slot_bytes, 0,
                            std::max<int64_t>(useful - slots[main], 0));

    plan.device_classes = gathered_;
    for (size_t c = 0; c < slots.size(); ++c) {
      plan.device_classes[c].slots = slots[c];
    }
    const size_t first_home_class = plan.device_classes.size();
    plan.problem.slots = slots;
    plan.problem.prefetch_depth = depth;
    internal::FetchCosts costs =
        internal::FetchCostsOf(layout_, input_.sharding, homes, input_.machine);
    plan.problem.fetch_cost = std::move(costs.cost);
    plan.problem.shard_cost = std::move(costs.shard_cost);
    plan.problem.shards_per_slot = ShardsPerSlot(plan.problem);
    plan.problem.cost_unit = costs.unit;
    plan.unknown_links = std::move(costs.unknown);
    for (size_t c = 0; c < homes.size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      plan.problem.param_class.push_back(direct[c] ? kNoSlotClass
                                                   : slot_class_[c]);
      plan.problem.grad_class.push_back(input_.grads_in_place && Trainable(c)
                                            ? kNoSlotClass
                                            : grad_class_[c]);
      plan.problem.survives_step.push_back(!Trainable(c));
      plan.states.push_back(
          Places(homes[c], shapes_[c], chunk, first_home_class, plan));
    }
    if (LeaseBytes() > Bytes(0)) {
      plan.lease_class = static_cast<int32_t>(plan.device_classes.size());
      plan.device_classes.push_back({LeaseBytes(), 1});
    }
    if (NormBytes() > Bytes(0)) {
      plan.norm_class = static_cast<int32_t>(plan.device_classes.size());
      plan.device_classes.push_back({NormBytes(), 1});
    }
    if (staging > 0) {
      plan.staging_class = static_cast<int32_t>(plan.host_classes.size());
      plan.host_classes.push_back({demand_.staging_slot, staging});
      plan.staging_slots = staging;
    }
    return plan;
  }

  // How many shards fit one gathered slot of each class, where copies of them
  // may be kept. None are worth it where others bring nothing.
  std::vector<int64_t> ShardsPerSlot(const PlanProblem& problem) const {
    if (problem.shard_cost.empty()) return {};
    std::vector<Bytes> largest(gathered_.size());
    for (size_t c = 0; c < slot_class_.size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      const ShardRange kept =
          input_.sharding.kept(StateKind::kParam, layout_, chunk);
      Bytes& shard = largest[static_cast<size_t>(slot_class_[c])];
      shard =
          std::max(shard, BytesOf(kept.end - kept.begin, layout_.dtype(chunk)));
    }
    std::vector<int64_t> fit;
    for (size_t k = 0; k < gathered_.size(); ++k) {
      fit.push_back(largest[k] > Bytes(0) ? gathered_[k].slot_bytes / largest[k]
                                          : 0);
    }
    return fit;
  }

  std::array<StatePlace, kStateKinds> Places(const ChunkHomes& homes,
                                             const ChunkStates& shape,
                                             ChunkId chunk,
                                             size_t first_home_class,
                                             MemoryPlan& plan) const {
    const GroupInfo& group =
        layout_.groups()[static_cast<size_t>(layout_.chunk(chunk).group)];
    std::array<StatePlace, kStateKinds> places;
    for (int k = 0; k < kStateKinds; ++k) {
      const StateKind state = static_cast<StateKind>(k);
      if (!input_.sharding.exists(state, group)) continue;
      StatePlace& place = places[Index(state)];
      const ShardRange kept = input_.sharding.kept(state, layout_, chunk);
      place.bytes =
          BytesOf(kept.end - kept.begin, input_.sharding.dtype(state, group));
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

  const MemoryPlanInput& input_;
  const ChunkLayout& layout_;
  std::vector<SlotClass> gathered_;  // sizes; slots are counted elsewhere
  std::vector<int32_t> slot_class_;  // by ChunkId, of parameters
  std::vector<int32_t> grad_class_;  // by ChunkId
  std::map<int32_t, int64_t> chunks_in_class_;
  std::vector<ChunkStates> shapes_;  // by ChunkId
  Status ruled_;  // whether there is a tier for what rules bind
  internal::MemoryDemand demand_;
  std::vector<int64_t> need_;  // gathered slots by class, none direct
};

// Leases alone: without elements there is no norm to sum up.
Result<MemoryPlan> PlanWithoutChunks(const MemoryPlanInput& input) {
  MemoryPlan plan;
  const Bytes lease = RoundUp(input.declared.largest_lease, kDeviceAlign);
  if (lease > input.device_budget) {
    return Infeasible(fmt::format(
        "the device budget of {} cannot hold a lease of {}; raise the device "
        "budget by {}",
        FormatBytes(input.device_budget), FormatBytes(lease),
        FormatBytes(lease - input.device_budget)));
  }
  if (lease > Bytes(0)) {
    plan.lease_class = 0;
    plan.device_classes.push_back({lease, 1});
  }
  return plan;
}

}  // namespace

Result<MemoryPlan> PlanMemory(const MemoryPlanInput& input) {
  // Far more than any budget; what comes near it would overflow sums.
  constexpr Bytes kLargestLease = GiB(int64_t{1} << 30);
  const Bytes lease = input.declared.largest_lease;
  if (lease < Bytes(0) || lease > kLargestLease) {
    return InvalidArgument(fmt::format("a largest lease of {} has no meaning",
                                       FormatBytes(lease)));
  }
  if (input.layout->chunks().empty()) return PlanWithoutChunks(input);
  return Builder(input).Build();
}

BudgetRaises SmallestRaises(const MemoryPlanInput& input) {
  if (input.layout->chunks().empty()) return {};
  return Builder(input).SmallestRaises();
}

Bytes SlotsBytes(std::span<const SlotClass> classes) {
  Bytes sum;
  for (const SlotClass& each : classes) sum += each.slot_bytes * each.slots;
  return sum;
}

}  // namespace castor
