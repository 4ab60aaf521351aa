// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MEMORY_STATIC_HOMES_H_
#define CASTOR_COLLECTIVES_MEMORY_STATIC_HOMES_H_

// Part of the demand for memory (memory_demand.h).
//
// Whether a rank's budgets hold homes that a user asked for
// (placement/homes/static_policy.h), which no budget moves. Pure functions,
// thread-safe.

#include <array>
#include <cstdint>
#include <span>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/memory/memory_demand.h"
#include "placement/homes/home_policy.h"
#include "placement/homes/static_policy.h"
#include "placement/placement_rules.h"

namespace castor::internal {

// Homes by limits and rules, whatever the budgets are. Fails as PlaceStatically
// does, but for want of room. `has_nvme`: there is such a tier.
Result<StaticPlacement> PlaceAsAsked(std::span<const ChunkStates> chunks,
                                     const StateNames& names,
                                     const StaticLimits& limits,
                                     std::span<const ChunkBindings> bindings,
                                     bool has_nvme);

// What a rank needs besides homes.
struct WorkingSet {
  Bytes serving;                  // of the device: gathered slots, leases
  Bytes slot_ahead;               // of the device: a copy that is fetched ahead
  int most_ahead = 0;             // of these
  Bytes staging_slot;             // of the host
  int64_t windows = kStateKinds;  // of one update
};

// What of it there is room for.
struct WorkingRoom {
  int ahead = 0;
  HostScheme staging;
};

// The most copies ahead of use, then the most slots of staging that fit beside
// the homes. Infeasible, with every tier that lacks bytes, what it is to hold
// and by how much to raise its budget, where not even what must be there fits.
Result<WorkingRoom> FitBesideHomes(std::span<const ChunkStates> chunks,
                                   const StaticPlacement& placement,
                                   const WorkingSet& work,
                                   const Budgets& budgets);

// Moves the states that rules bind from what is left to be placed to where they
// are bound: they go from `chunks`, and `ruled` gets their bytes by tier.
// Infeasible for a rule to an NVMe tier that is not there.
Status TakeRuled(std::span<const ChunkBindings> bindings, bool has_nvme,
                 const StateNames& names, std::span<ChunkStates> chunks,
                 std::array<Bytes, 3>& ruled);

// The bytes that homes take, by state and tier.
StaticPlacement PlacementOf(std::span<const ChunkStates> chunks,
                            const StateNames& names,
                            std::span<const ChunkHomes> homes);

// Puts what rules bind of `chunks` where they do.
void ApplyRuled(std::span<const ChunkBindings> bindings,
                std::span<const ChunkStates> chunks,
                std::span<ChunkHomes> homes);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MEMORY_STATIC_HOMES_H_
