// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/byte_classes.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "offload/memory/tier_pool.h"
#include "placement/plan.h"

namespace castor {
namespace {

const std::vector<SlotClass>& ClassesOf(const MemoryPlan& memory, Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return memory.device_classes;
    case Tier::kHost:
      return memory.host_classes;
    case Tier::kNvme:
      break;
  }
  return memory.nvme_classes;
}

Bytes SlotBytes(const SlotClass& slots) {
  return slots.slot_bytes * slots.slots;
}

void AddStates(const MemoryPlan& memory, ByteTable& table) {
  for (const auto& states : memory.states) {
    for (size_t k = 0; k < states.size(); ++k) {
      const StatePlace& place = states[k];
      if (place.bytes == Bytes(0)) continue;
      const Bytes slot =
          ClassesOf(memory, place.home)[static_cast<size_t>(place.slot_class)]
              .slot_bytes;
      table.at(static_cast<ByteClass>(k), place.home) += place.bytes;
      table.at(ByteClass::kRounding, place.home) += slot - place.bytes;
    }
  }
}

void AddGathered(const MemoryPlan& memory, ByteTable& table) {
  const PlanProblem& problem = memory.problem;
  const std::vector<int64_t>& need = memory.needed_slots;
  for (size_t c = 0; c < problem.slots.size(); ++c) {
    const Bytes slot = memory.device_classes[c].slot_bytes;
    const int64_t more = problem.slots[c] - need[c];
    const int64_t ahead = std::min<int64_t>(more, problem.prefetch.depth);
    table.at(ByteClass::kGathered, Tier::kDevice) += slot * need[c];
    table.at(ByteClass::kPrefetch, Tier::kDevice) += slot * ahead;
    table.at(ByteClass::kKept, Tier::kDevice) += slot * (more - ahead);
  }
}

}  // namespace

std::string_view ByteClassName(ByteClass kind, const StateNames& states) {
  switch (kind) {
    case ByteClass::kRounding:
      return "rounding";
    case ByteClass::kGathered:
      return "gathered";
    case ByteClass::kPrefetch:
      return "prefetch";
    case ByteClass::kKept:
      return "kept";
    case ByteClass::kSpare:
      return "spare";
    case ByteClass::kStaging:
      return "staging";
    case ByteClass::kNorm:
      return "norm";
    case ByteClass::kCommunicator:
      return "communicator";
    case ByteClass::kLeases:
      return "leases";
    default:
      return states.of(static_cast<StateKind>(kind));
  }
}

std::vector<ByteClass> ByteTable::classes() const {
  std::vector<ByteClass> classes;
  for (int c = 0; c < kByteClasses; ++c) {
    if (c < kStateKinds && c >= states.states()) continue;
    classes.push_back(static_cast<ByteClass>(c));
  }
  return classes;
}

Bytes ByteTable::total(Tier tier) const {
  Bytes sum;
  for (const auto& row : bytes) {
    sum += row[TierIndex(tier)];
  }
  return sum;
}

Bytes ByteTable::total(ByteClass kind) const {
  Bytes sum;
  for (const Bytes on_tier : bytes[static_cast<size_t>(kind)]) sum += on_tier;
  return sum;
}

ByteTable ByteTableOf(const MemoryPlan& memory, Bytes communicator_buffers) {
  ByteTable table;
  table.states = memory.placement.names;
  AddStates(memory, table);
  AddGathered(memory, table);
  const auto slots = [](const std::vector<SlotClass>& classes, int32_t c) {
    return c < 0 ? Bytes(0) : SlotBytes(classes[static_cast<size_t>(c)]);
  };
  for (const Tier tier : {Tier::kHost, Tier::kNvme}) {
    table.at(ByteClass::kSpare, tier) = memory.spare_bytes[TierIndex(tier)];
  }
  table.at(ByteClass::kStaging, Tier::kHost) =
      slots(memory.host_classes, memory.staging_class);
  table.at(ByteClass::kNorm, Tier::kDevice) =
      slots(memory.device_classes, memory.norm_class);
  table.at(ByteClass::kLeases, Tier::kDevice) =
      slots(memory.device_classes, memory.lease_class);
  table.at(ByteClass::kCommunicator, Tier::kDevice) = communicator_buffers;
  return table;
}

}  // namespace castor
