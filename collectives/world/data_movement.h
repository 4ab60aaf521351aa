// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_WORLD_DATA_MOVEMENT_H_
#define CASTOR_COLLECTIVES_WORLD_DATA_MOVEMENT_H_

// Part of the collective call (collective_call.h).
//
// The memory work of a collective among ranks that can read each other's
// buffers, cut into one part per rank. The parts of one call touch disjoint
// bytes wherever one of them writes, so they may run in any order and at the
// same time, in place too. Pure functions, thread-safe.

#include <cstdint>
#include <span>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/world/collective_call.h"

namespace castor::internal {

// What one rank brought: `in` is read, `out` written. Where there is one buffer
// only (all-reduce, broadcast) both are the same.
struct RankBuffers {
  const void* in = nullptr;
  void* out = nullptr;
};

// The part of `rank`, of a world of buffers.size() ranks. All-gather and
// broadcast write the rank's own buffer; reduce-scatter sums its shard over the
// scope's ranks, in their order; all-reduce reduces one slice of the elements
// and writes it to every rank.
void MoveForRank(const CollectiveCall& call, int rank,
                 std::span<const RankBuffers> buffers);

// acc[i] = ((acc[i] op parts[0][i]) op parts[1][i]) ..., what is not a number
// made canonical: how an all-reduce adds up what ranks bring, in their order.
void ReduceInto(void* acc, std::span<const void* const> parts, DType dtype,
                ReduceOp op, int64_t count);

// What `call` adds to the statistics of `rank`.
CommunicatorStats Traffic(const CollectiveCall& call, int rank,
                          std::span<const RankBuffers> buffers);

// Bytes that all parts together write.
Bytes BytesWritten(const CollectiveCall& call, int world);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_WORLD_DATA_MOVEMENT_H_
