// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/world/call_communicator.h"

#include "chunk/base/check.h"

namespace castor::internal {

void CallCommunicator::AllGather(Lane& lane, const void* shard, void* chunk,
                                 Elements shard_elements, DType dtype,
                                 const CollectiveTag& tag) {
  CheckedQueue(lane,
               {.kind = CollectiveKind::kAllGather,
                .tag = tag,
                .count = shard_elements.count(),
                .dtype = dtype},
               {shard, chunk});
}

void CallCommunicator::ReduceScatter(Lane& lane, const void* chunk, void* shard,
                                     Elements shard_elements, DType dtype,
                                     const CollectiveTag& tag) {
  CASTOR_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 ||
               dtype == DType::kF16);
  CheckedQueue(lane,
               {.kind = CollectiveKind::kReduceScatter,
                .tag = tag,
                .count = shard_elements.count(),
                .dtype = dtype},
               {chunk, shard});
}

void CallCommunicator::AllReduce(Lane& lane, void* data, Elements elements,
                                 DType dtype, ReduceOp op,
                                 const CollectiveTag& tag) {
  CASTOR_CHECK(dtype == DType::kU64 || dtype == DType::kI64 ||
               dtype == DType::kF64 || dtype == DType::kF32);
  CheckedQueue(lane,
               {.kind = CollectiveKind::kAllReduce,
                .tag = tag,
                .count = elements.count(),
                .dtype = dtype,
                .op = op},
               {data, data});
}

void CallCommunicator::Broadcast(Lane& lane, void* data, Bytes bytes, int root,
                                 const CollectiveTag& tag) {
  CASTOR_CHECK(root >= 0 && root < world());
  CheckedQueue(lane,
               {.kind = CollectiveKind::kBroadcast,
                .tag = tag,
                .count = bytes.count(),
                .root = root},
               {data, data});
}

void CallCommunicator::Barrier(Lane& lane, const CollectiveTag& tag) {
  CheckedQueue(lane, {.kind = CollectiveKind::kBarrier, .tag = tag}, {});
}

void CallCommunicator::CheckedQueue(Lane& lane, const CollectiveCall& call,
                                    const RankBuffers& buffers) {
  CASTOR_CHECK_GE(call.count, 0);
  CASTOR_CHECK(call.tag.scope.Divides(world()));
  Queue(lane, call, buffers);
}

}  // namespace castor::internal
