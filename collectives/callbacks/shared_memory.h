// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CALLBACKS_SHARED_MEMORY_H_
#define CASTOR_COLLECTIVES_CALLBACKS_SHARED_MEMORY_H_

// Collectives of ranks that are processes of one host, over memory that they
// share: what a rank sends is copied into its part of the memory, and the
// others copy it out. A rank that waits sleeps on a futex.
//
//     rank 0's part | piece 0 | piece 1 |     written by rank 0 alone, piece 2
//     rank 1's part | piece 0 | piece 1 |     over piece 0 once all have read
//
// An all-gather has one piece for all; in an all-to-all each half of a part has
// a place for each rank. Two counters for each pair of ranks say how many
// pieces were written and read, ever.

#include <cstdint>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/callbacks/callback_communicator.h"

namespace castor {

inline constexpr int kMostSharedMemoryRanks = 64;

// Of all ranks of a world together: 8 MiB for each, and 32 MiB at most.
Bytes SharedMemoryFor(int size);

// For MakeCallbackCommunicator. Nothing happens before the first call, in which
// all ranks meet: rank 0 makes the memory by `name`, which is new for each
// world, and takes the name away once all have come. Unavailable where the
// host's shared memory has no room, a rank does not come within `timeout_ns`
// (0: for ever), or its process has ended; Aborted once a rank has aborted.
// REQUIRES: 1 to kMostSharedMemoryRanks ranks.
HostCollectives MakeSharedMemoryCollectives(int rank, int size,
                                            const std::string& name,
                                            int64_t timeout_ns);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CALLBACKS_SHARED_MEMORY_H_
