// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/callbacks/callback_communicator.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/callbacks/callback_world.h"
#include "collectives/world/call_communicator.h"
#include "collectives/world/collective_call.h"
#include "collectives/world/data_movement.h"
#include "collectives/world/queue_call.h"
#include "offload/lane.h"

namespace castor {
namespace {

using internal::CallbackWorld;
using internal::CollectiveCall;
using internal::RankBuffers;

class CallbackCommunicator final : public internal::CallCommunicator {
 public:
  explicit CallbackCommunicator(std::shared_ptr<CallbackWorld> world)
      : world_(std::move(world)) {}
  ~CallbackCommunicator() override { world_->Leave(); }

  int rank() const override { return world_->rank(); }
  int world() const override { return world_->size(); }

  void Abort(Status reason) override { world_->End(std::move(reason)); }
  Status Health() const override { return world_->ended(); }
  Bytes buffer_bytes() const override { return world_->buffer_bytes(); }
  CommunicatorStats stats() const override { return world_->stats(); }

 private:
  void Queue(Lane& lane, const CollectiveCall& call,
             const RankBuffers& buffers) override {
    internal::QueueCall(lane, world_, call, buffers);
  }

  const std::shared_ptr<CallbackWorld> world_;
};

}  // namespace

Status CheckCallbackOptions(const CallbackOptions& options) {
  if (options.timeout_ns >= 0 && options.exchange_buffer >= Bytes(0)) {
    return OkStatus();
  }
  return InvalidArgument(
      "neither a timeout nor a buffer of a communicator can be negative");
}

Result<std::unique_ptr<Communicator>> MakeCallbackCommunicator(
    int rank, int size, HostCollectives host, const CallbackOptions& options) {
  if (size < 1 || rank < 0 || rank >= size) {
    return InvalidArgument(
        fmt::format("there is no rank {} in a world of {}: ranks count from 0",
                    rank, size));
  }
  if (!host.all_gather || !host.all_to_all || !host.barrier || !host.abort) {
    return InvalidArgument(
        "a call of the host's collectives is missing: give all_gather, "
        "all_to_all, barrier and abort");
  }
  CASTOR_RETURN_IF_ERROR(CheckCallbackOptions(options));
  CallbackOptions own = options;
  if (own.clock == nullptr) {
    static const SteadyClock machine;
    own.clock = &machine;
  }
  auto world =
      std::make_shared<CallbackWorld>(rank, size, std::move(host), own);
  CASTOR_RETURN_IF_ERROR(world->Start());
  return std::unique_ptr<Communicator>(
      std::make_unique<CallbackCommunicator>(std::move(world)));
}

}  // namespace castor
