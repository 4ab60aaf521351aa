// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "collectives/internal/call_communicator.h"
#include "collectives/internal/collective_call.h"
#include "collectives/internal/data_movement.h"
#include "collectives/internal/queue_call.h"
#include "collectives/mpi/internal/mpi_world.h"
#include "offload/lane.h"

namespace castor {
namespace {

using internal::CollectiveCall;
using internal::CollectiveKind;
using internal::MpiWorld;
using internal::RankBuffers;

class MpiCommunicator final : public internal::CallCommunicator {
 public:
  explicit MpiCommunicator(std::shared_ptr<MpiWorld> world)
      : world_(std::move(world)) {}
  ~MpiCommunicator() override { world_->Leave(); }

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

  const std::shared_ptr<MpiWorld> world_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> MakeMpiCommunicator(
    MpiSession& session, const MpiOptions& options) {
  constexpr Bytes kMost = Bytes((int64_t{1} << 31) - 1);
  if (options.timeout_ns < 0 || options.exchange_buffer < Bytes(0)) {
    return InvalidArgument(
        "neither a timeout nor a buffer of a communicator can be negative");
  }
  if (options.most_at_once < Bytes(1) || options.most_at_once > kMost) {
    return InvalidArgument(
        fmt::format("pieces of {} bytes cannot be sent: MPI takes from 1 to {}",
                    options.most_at_once.count(), kMost.count()));
  }
  CASTOR_ASSIGN_OR_RETURN(
      std::shared_ptr<MpiWorld> world,
      session.Join(
          {.timeout_ns = options.timeout_ns,
           .sizes = {.most_at_once = options.most_at_once,
                     .segment = internal::SegmentOf(options.exchange_buffer,
                                                    session.world(), kMost)},
           .clock =
               options.clock != nullptr ? options.clock : MachineClock()}));
  return std::unique_ptr<Communicator>(
      std::make_unique<MpiCommunicator>(std::move(world)));
}

}  // namespace castor
