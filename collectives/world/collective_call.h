// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_WORLD_COLLECTIVE_CALL_H_
#define CASTOR_COLLECTIVES_WORLD_COLLECTIVE_CALL_H_

// What a rank asks of the others, apart from its buffers: what ranks must agree
// on, and the sentences for when they do not. Shared by all backends, so that
// every one of them names rank, chunk and moment alike. Values.

#include <cstdint>
#include <span>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "collectives/communicator.h"

namespace castor::internal {

enum class CollectiveKind : uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kBarrier,
};

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  CollectiveTag tag;
  // Elements of `dtype`: of one shard for a gather or a scatter, of the whole
  // otherwise. A broadcast counts bytes, a barrier nothing.
  int64_t count = 0;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;  // of an all-reduce
  int root = 0;                  // of a broadcast
};

// Whether two ranks ask for the same thing, down to what the purpose says.
bool SameCall(const CollectiveCall& a, const CollectiveCall& b);

// `all-gather of chunk 3 at moment 11 ("param", 4096 F32 elements per rank)`.
std::string Describe(const CollectiveCall& call);

// "rank 4", "ranks 0-2 and 5".
std::string DescribeRanks(std::span<const int> ranks);

// Why the world ends. `position` counts the world's operations from 0.

Status MismatchError(int64_t position, int rank, const CollectiveCall& call,
                     int other_rank, const CollectiveCall& other_call);
// `missing` ranks have not come in `waited_ns`.
Status TimeoutError(int64_t position, const CollectiveCall& call,
                    std::span<const int> missing, int64_t waited_ns);
// `rank` will never come: its communicator is gone.
Status LeftError(int64_t position, const CollectiveCall& call, int rank);
// `rank` will never come: its lane failed before.
Status SkippedError(int64_t position, const CollectiveCall& call, int rank);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_WORLD_COLLECTIVE_CALL_H_
