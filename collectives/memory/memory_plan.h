// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MEMORY_MEMORY_PLAN_H_
#define CASTOR_COLLECTIVES_MEMORY_MEMORY_PLAN_H_

// How a rank's budgets are cut into slots: homes of every state, gathered
// slots, staging, leases. Computed once, at Seal, from numbers on which all
// ranks agree, so that every rank cuts alike. Pure, thread-safe.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/memory/budget_raises.h"
#include "collectives/memory/sharding.h"
#include "collectives/zero_options.h"
#include "offload/kernels/exact_sum.h"
#include "offload/memory/tier_pool.h"
#include "placement/homes/static_policy.h"
#include "placement/placement_rules.h"
#include "placement/plan.h"
#include "placement/tier_model.h"

namespace castor {

// The engine's own words for the norm, on the device, which go to the host once
// a step.
inline constexpr Bytes kNormBytes{int64_t{ExactSum::kWords} * 8};

// Words of 8 bytes that ranks exchange in a step besides: whether all make the
// same one.
inline constexpr int64_t kStepWords = 8;

struct MemoryPlanInput {
  const ChunkLayout* layout = nullptr;
  Sharding sharding;
  Bytes device_budget;   // the communicator's buffers taken off
  Bytes device_buffers;  // these
  Bytes host_budget;
  std::optional<Bytes> nvme_budget;
  // kNormBytes, or 0 where none are needed.
  Bytes norm_bytes;
  bool keep_copies = true;  // in what the device budget leaves over
  Prefetch prefetch;
  int64_t step_compute_ns = 0;  // 0: unknown
  // A gradient that is opened stays so, whole, to the end of the step.
  bool whole_grads = false;
  // A gradient takes the place of the parameters that are in use: no slot.
  bool grads_in_place = false;
  // Host memory and NVMe that are left over become spare places of states.
  bool spare_places = false;
  // The optimizer's update takes whole parameters: no shard is moved in pieces.
  bool whole_updates = false;
  SealOptions declared;
  // What is asked of homes: limits, and where rules bind states, by ChunkId.
  // Empty: homes are as budgets allow.
  std::optional<StaticLimits> limits;
  std::vector<ChunkBindings> bindings;
  // What a refusal names, in place of the raises that serve this layout.
  std::optional<BudgetRaises> offers;
  // How fast the links are; what was not measured is weighed without it.
  std::optional<TierModel> machine;
};

struct StatePlace {
  Bytes bytes;  // 0: the state does not exist
  Tier home = Tier::kHost;
  int32_t slot_class = -1;  // of its home's pool
  // Of spare places (ShardStore::TakeAside) in host memory and on NVMe; -1:
  // there are none. A state at home in host memory may have both.
  int32_t host_spare_class = -1;
  int32_t nvme_spare_class = -1;
};

struct MemoryPlan {
  // Gathered slots are the first classes of the device pool.
  PlanProblem problem;
  // Of these, by class: what the declared moments hold at once.
  std::vector<int64_t> needed_slots;
  std::vector<std::array<StatePlace, kStateKinds>> states;  // by ChunkId
  std::vector<SlotClass> device_classes;
  std::vector<SlotClass> host_classes;
  std::vector<SlotClass> nvme_classes;
  int32_t lease_class = -1;    // of the device pool; -1: no leases
  int32_t norm_class = -1;     // of the device pool; -1: no norm
  int32_t staging_class = -1;  // of the host pool; -1: no staging
  int64_t staging_slots = 0;
  int64_t fetch_slots = 0;  // of these, for fetches alone
  // Larger shards move in pieces of so many elements; 0: none does.
  Elements piece{0};
  std::array<Bytes, 3> home_bytes;   // by TierIndex
  std::array<Bytes, 3> spare_bytes;  // of spare places, likewise
  StaticPlacement placement;         // the same homes as in `states`, and names
  // Links that fetches pass and `machine` does not know (fetch_costs.h).
  std::string unknown_links;
};

// Infeasible when the budgets cannot serve what is declared, with the smallest
// raise of each budget that makes it fit alone, where one does: `raise the
// device budget by N bytes`, `raise the host budget by N bytes`, `raise the
// NVMe size by N bytes`, `give an NVMe directory with N bytes`; and where much
// less does, `raise both, the device budget by N bytes and the host budget by N
// bytes`. A larger budget
// never fails where a smaller one fits. As PlaceStatically where limits are
// given, or rules that there is no tier for.
Result<MemoryPlan> PlanMemory(const MemoryPlanInput& input);

// These raises as numbers; none where it fits, or limits are given. REQUIRES: a
// largest lease that PlanMemory accepts.
BudgetRaises SmallestRaises(const MemoryPlanInput& input);

// What deadlines of fetches would take and nobody gave, in words: "no machine
// tells how fast links are, and no compute time of a step is declared".
std::string LackedByDeadlines(const MemoryPlan& plan);

// Of all slots of these classes together.
Bytes SlotsBytes(std::span<const SlotClass> classes);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_MEMORY_MEMORY_PLAN_H_
