// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MEMORY_FETCH_COSTS_H_
#define CASTOR_COLLECTIVES_MEMORY_FETCH_COSTS_H_

// Part of the demand for memory (memory_demand.h).
//
// What it costs to make a gathered copy of each chunk, as policies weigh it: in
// seconds of the links that its bytes pass one after the other, latency plus
// bytes over bandwidth, where every one of them was measured; else by how many
// they are. Pure functions, thread-safe.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/chunk_layout.h"
#include "collectives/memory/sharding.h"
#include "placement/homes/home_policy.h"
#include "placement/plan.h"
#include "placement/tier_model.h"

namespace castor::internal {

struct FetchCosts {
  std::vector<double> cost;  // by ChunkId; positive
  // Of it, by ChunkId, what bringing this rank's shard to the device costs
  // where others bring the rest; else 0. Empty where it is 0 for all.
  std::vector<double> shard_cost;
  FetchCostUnit unit = FetchCostUnit::kLinks;
  // The same fetches leg by leg, by ChunkId; empty where a link is unknown.
  std::vector<FetchLegs> legs;
  // The links that fetches need and a machine does not know, as its file calls
  // them: "nvme_read, all_gather". Empty where it knows all, or there is none.
  std::string unknown;
};

// The same on every rank. `machine` may be empty: nothing was measured.
FetchCosts FetchCostsOf(const ChunkLayout& layout, const Sharding& sharding,
                        std::span<const ChunkHomes> homes,
                        const std::optional<TierModel>& machine);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MEMORY_FETCH_COSTS_H_
