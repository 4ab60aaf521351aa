// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_WORLD_QUEUE_CALL_H_
#define CASTOR_COLLECTIVES_WORLD_QUEUE_CALL_H_

// Part of the ranks' agreement (rank_agreement.h).
//
// How a call gets from a lane to a world that has one rank in this process:
//
//   int64_t Call();  // the number of the next operation
//   void Arrive(int64_t position, const CollectiveCall& call,
//               const RankBuffers& buffers, EventSource done);
//   void Skip(int64_t position, const CollectiveCall& call);

#include <cstdint>
#include <memory>
#include <utility>

#include "collectives/world/collective_call.h"
#include "collectives/world/data_movement.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"

namespace castor::internal {

// A call in the queue of a lane. A lane that has failed drops it without
// starting it: then the others must not wait for it.
template <typename World>
class QueuedCall {
 public:
  QueuedCall(std::shared_ptr<World> world, const CollectiveCall& call,
             const RankBuffers& buffers)
      : world_(std::move(world)),
        position_(world_->Call()),
        call_(call),
        buffers_(buffers) {}
  ~QueuedCall() {
    if (!started_) world_->Skip(position_, call_);
  }
  QueuedCall(const QueuedCall&) = delete;
  QueuedCall& operator=(const QueuedCall&) = delete;

  void Start(EventSource done) {
    started_ = true;
    world_->Arrive(position_, call_, buffers_, std::move(done));
  }

 private:
  const std::shared_ptr<World> world_;
  const int64_t position_;
  const CollectiveCall call_;
  const RankBuffers buffers_;
  bool started_ = false;
};

// The next operation of this rank, in the lane's order. Owner thread only.
template <typename World>
void QueueCall(Lane& lane, const std::shared_ptr<World>& world,
               const CollectiveCall& call, const RankBuffers& buffers) {
  auto queued = std::make_shared<QueuedCall<World>>(world, call, buffers);
  lane.RunAsync([queued = std::move(queued)](EventSource done) {
    queued->Start(std::move(done));
  });
}

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_WORLD_QUEUE_CALL_H_
