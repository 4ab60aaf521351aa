// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_WORLD_CALL_COMMUNICATOR_H_
#define CASTOR_COLLECTIVES_WORLD_CALL_COMMUNICATOR_H_

// Part of the ranks' agreement (rank_agreement.h).
//
// A communicator whose operations are calls and buffers: what every backend
// asks of its arguments is asked here, and a backend says how one is queued. As
// thread-safe as communicator.h asks for, if Queue is.

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/world/collective_call.h"
#include "collectives/world/data_movement.h"
#include "offload/lane.h"

namespace castor::internal {

class CallCommunicator : public Communicator {
 public:
  void AllGather(Lane& lane, const void* shard, void* chunk,
                 Elements shard_elements, DType dtype,
                 const CollectiveTag& tag) final;
  void ReduceScatter(Lane& lane, const void* chunk, void* shard,
                     Elements shard_elements, DType dtype,
                     const CollectiveTag& tag) final;
  void AllReduce(Lane& lane, void* data, Elements elements, DType dtype,
                 ReduceOp op, const CollectiveTag& tag) final;
  void Broadcast(Lane& lane, void* data, Bytes bytes, int root,
                 const CollectiveTag& tag) final;
  void Barrier(Lane& lane, const CollectiveTag& tag) final;

 private:
  // The next operation of this rank, in the lane's order.
  virtual void Queue(Lane& lane, const CollectiveCall& call,
                     const RankBuffers& buffers) = 0;

  // As Queue, of what has a meaning.
  void CheckedQueue(Lane& lane, const CollectiveCall& call,
                    const RankBuffers& buffers);
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_WORLD_CALL_COMMUNICATOR_H_
