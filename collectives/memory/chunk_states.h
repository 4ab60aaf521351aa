// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MEMORY_CHUNK_STATES_H_
#define CASTOR_COLLECTIVES_MEMORY_CHUNK_STATES_H_

// What one rank keeps of a chunk, in bytes of slots, and what its homes cost in
// bytes moved. Pure functions, thread-safe.

#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/memory/sharding.h"
#include "placement/homes/home_policy.h"

namespace castor::internal {

// Slots begin at multiples of these.
inline constexpr Bytes kDeviceAlign{512};
inline constexpr Bytes kHostAlign{4096};  // and on NVMe

// The chunk's states on this rank: fetched forward and backward, written by the
// host where they are updated there, and refreshed where replicated.
ChunkStates StatesOf(const ChunkLayout& layout, const Sharding& sharding,
                     ChunkId chunk);

// Links that the bytes cross on their way from `home` into a gathered slot: the
// one between ranks, the one to the device, the one from the drive. Where they
// were measured, fetch_costs.h says more.
double FetchCost(Tier home);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MEMORY_CHUNK_STATES_H_
