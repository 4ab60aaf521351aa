// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "chunk/text/budget_text.h"
#include "chunk/text/raises_text.h"
#include "chunk/text/units_text.h"
#include "collectives/memory/chunk_states.h"
#include "collectives/memory/memory_demand.h"
#include "collectives/memory/memory_plan_needs.h"
#include "collectives/memory/static_homes.h"
#include "placement/homes/home_policy.h"

namespace castor {
namespace {

// Chooses homes that the budgets hold.
class HomeChooser {
 public:
  explicit HomeChooser(const MemoryPlanInput& input)
      : input_(input), needs_(input) {
    demand_.chunks = needs_.shapes();
    ruled_ = internal::TakeRuled(
        input_.bindings, input_.nvme_budget.has_value(), input_.sharding.states,
        demand_.chunks, demand_.ruled);
    const bool whole = input_.sharding.replicated(StateKind::kParam);
    need_ = needs_.Slots({});
    demand_.serving = needs_.GatheredBytes(need_) + needs_.lease_bytes() +
                      needs_.norm_bytes();
    demand_.all_on_device =
        needs_.GatheredBytes(
            needs_.Slots(std::vector<bool>(needs_.chunks(), whole))) +
        needs_.lease_bytes() + needs_.norm_bytes() + demand_.ruled[0];
    for (const ChunkStates& shape : demand_.chunks) {
      for (Bytes bytes : shape.device_bytes) demand_.all_on_device += bytes;
    }
    demand_.staging_slot = needs_.staging_slot();
    demand_.windows = internal::WindowsOfAnUpdate(needs_.shapes());
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
      return Cut(std::vector<ChunkHomes>(needs_.chunks(), on_device), {},
                 input_.prefetch.depth);
    }
    for (const internal::HostScheme& scheme : internal::HostSchemes(
             budgets, demand_.windows, demand_.staging_slot, demand_.mixed())) {
      for (int depth = input_.prefetch.depth; depth >= 0; --depth) {
        const std::optional<HomeRoom> room = demand_.RoomForHomes(
            budgets, scheme,
            needs_.gathered()[needs_.main_class()].slot_bytes * depth);
        if (!room) continue;
        HomeProblem problem{*room, demand_.chunks};
        if (input_.machine) {
          problem.nvme_read = input_.machine->nvme_read;
          problem.nvme_write = input_.machine->nvme_write;
        }
        Result<std::vector<ChunkHomes>> homes = AssignHomes(problem);
        if (!homes.ok()) continue;
        internal::ApplyRuled(input_.bindings, needs_.shapes(), *homes);
        return Cut(*homes, scheme, depth);
      }
    }
    // Empty where no single budget, raised, is enough.
    const BudgetRaises raises =
        input_.offers ? *input_.offers : demand_.SmallestRaises(budgets);
    return DoesNotFit(WhyNot(budgets) + WhatRulesTake(), raises.List(),
                      "smaller chunks, or fewer parameters held at once, need "
                      "less",
                      budgets.nvme.has_value());
  }

 private:
  internal::Budgets Given() const {
    return {input_.device_budget, input_.host_budget, input_.nvme_budget,
            input_.device_buffers, input_.sharding.world};
  }

  // Homes by limits, which budgets hold or do not.
  Result<MemoryPlan> BuildAsAsked(const internal::Budgets& budgets) const {
    CASTOR_ASSIGN_OR_RETURN(
        const StaticPlacement placement,
        internal::PlaceAsAsked(needs_.shapes(), input_.sharding.states,
                               *input_.limits, input_.bindings,
                               budgets.nvme.has_value()));
    internal::WorkingSet work;
    work.serving =
        needs_.GatheredBytes(needs_.Slots(needs_.Direct(placement.homes))) +
        needs_.lease_bytes() + needs_.norm_bytes();
    work.slot_ahead = needs_.gathered()[needs_.main_class()].slot_bytes;
    work.most_ahead = input_.prefetch.depth;
    work.staging_slot = demand_.staging_slot;
    work.windows = demand_.windows;
    CASTOR_ASSIGN_OR_RETURN(
        const internal::WorkingRoom room,
        internal::FitBesideHomes(needs_.shapes(), placement, work, budgets));
    return Cut(placement.homes, room.staging, room.ahead);
  }

  std::string WhyNot(const internal::Budgets& budgets) const {
    if (demand_.serving > budgets.device) {
      std::string held;
      for (size_t c = 0; c < needs_.gathered().size(); ++c) {
        if (need_[c] == 0) continue;
        held += fmt::format("{} gathered {} of {}, ", need_[c],
                            need_[c] == 1 ? "slot" : "slots",
                            FormatBytes(needs_.gathered()[c].slot_bytes));
      }
      if (needs_.lease_bytes() > Bytes(0)) {
        held += fmt::format("{} on lease, ", FormatBytes(needs_.lease_bytes()));
      }
      if (needs_.norm_bytes() > Bytes(0)) {
        held +=
            fmt::format("{} for the norm, ", FormatBytes(needs_.norm_bytes()));
      }
      if (budgets.buffers > Bytes(0)) {
        held += fmt::format("{} for exchanges between ranks, ",
                            FormatBytes(budgets.buffers));
      }
      return fmt::format(
          "the device budget of {} cannot hold what the step holds at once: "
          "{}{} in all",
          BudgetText(budgets.whole_device()), held,
          FormatBytes(demand_.serving + budgets.buffers));
    }
    Bytes states;
    for (const ChunkStates& shape : demand_.chunks) {
      for (Bytes bytes : shape.host_bytes) states += bytes;
    }
    const int64_t staging =
        internal::HostSchemes(budgets, demand_.windows, demand_.staging_slot)
            .back()
            .staging_slots;
    return fmt::format(
        "{} do not fit: of the device budget of {}, {} serve "
        "gathered chunks and leases{}, of the host budget of {}, {} serve "
        "staging, {}",
        states > Bytes(0) ? FormatBytes(states) + " of states"
                          : std::string("the states, placed by rules,"),
        BudgetText(budgets.whole_device()), FormatBytes(demand_.serving),
        budgets.buffers > Bytes(0) ? fmt::format(", {} exchanges between ranks",
                                                 FormatBytes(budgets.buffers))
                                   : std::string(),
        BudgetText(budgets.host), FormatBytes(demand_.staging_slot * staging),
        budgets.nvme
            ? fmt::format("and NVMe may hold {}", BudgetText(*budgets.nvme))
            : std::string("and there is no NVMe tier"));
  }

  std::string WhatRulesTake() const {
    if (!demand_.mixed()) return "";
    return fmt::format(
        "; besides, rules put {} on the device, {} on the host and {} on NVMe",
        FormatBytes(demand_.ruled[0]), FormatBytes(demand_.ruled[1]),
        FormatBytes(demand_.ruled[2]));
  }

  MemoryPlan Cut(const std::vector<ChunkHomes>& homes,
                 const internal::HostScheme& scheme, int depth) const {
    return internal::CutIntoSlots(
        needs_, homes,
        {demand_.staging_slot, scheme.staging_slots, scheme.fetch_slots},
        depth);
  }

  const MemoryPlanInput& input_;
  const internal::SlotNeeds needs_;
  Status ruled_;  // whether there is a tier for what rules bind
  internal::MemoryDemand demand_;
  std::vector<int64_t> need_;  // gathered slots by class, none direct
};

// Leases alone: without elements there is no norm to sum up.
Result<MemoryPlan> PlanWithoutChunks(const MemoryPlanInput& input) {
  MemoryPlan plan;
  const Bytes lease =
      RoundUp(input.declared.largest_lease, internal::kDeviceAlign);
  if (lease > input.device_budget) {
    return DoesNotFit(
        fmt::format("the device budget of {} cannot hold a lease of {}",
                    BudgetText(input.device_budget), FormatBytes(lease)),
        {RaiseOf(Tier::kDevice, lease - input.device_budget)}, "");
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
  return HomeChooser(input).Build();
}

BudgetRaises SmallestRaises(const MemoryPlanInput& input) {
  if (input.layout->chunks().empty()) return {};
  return HomeChooser(input).SmallestRaises();
}

std::string LackedByDeadlines(const MemoryPlan& plan) {
  std::string lacked;
  if (plan.problem.fetch_ns.empty()) {
    lacked =
        plan.unknown_links.empty()
            ? std::string("no machine tells how fast links are")
            : fmt::format("the machine does not know {}", plan.unknown_links);
  }
  if (plan.problem.step_compute_ns == 0) {
    if (!lacked.empty()) lacked += ", and ";
    lacked += "no compute time of a step is declared";
  }
  return lacked;
}

Bytes SlotsBytes(std::span<const SlotClass> classes) {
  Bytes sum;
  for (const SlotClass& each : classes) sum += each.slot_bytes * each.slots;
  return sum;
}

}  // namespace castor
