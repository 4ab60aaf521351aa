// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <utility>
#include <vector>

#include "collectives/engine/zero_engine_impl.h"
#include "offload/kernels/reduce.h"

namespace castor {

using internal::HomePass;
using internal::StateBytes;

Event ZeroEngine::Impl::Deposit(ChunkId chunk, std::byte* from,
                                const Event& reduced) {
  const StateKind kind = StateKind::kGrad;
  const bool first = !grads_[chunk.index()].valid;
  const bool squares = CountsNorm() && last_micro_batch_;
  const bool on_device = store_->home(chunk, kind) == Tier::kDevice;
  if (on_device && from == store_->device_data(chunk, kind)) {
    store_->SetWritten(chunk, kind, reduced);
    if (squares) CountSquares(chunk);
    return reduced;
  }
  const ShardRange kept = sharding_.kept(kind, *layout_, chunk);
  const Bytes bytes = store_->bytes(chunk, kind);
  if (first && !on_device) {
    const Event stored = store_->Store(chunk, kind, {Bytes(0), bytes}, from,
                                       reduced, RunCause::kGradient);
    if (!squares) return stored;
    device_lane_->Wait(reduced);
    AddDeviceSquares(chunk, kept, from);
    const Event both[] = {stored, device_lane_->Record()};
    return AllOf(both);
  }
  if (first) engine_copies_ += bytes;
  const internal::PassingGrad passing{from, reduced};
  const DType dtype = GradDType(chunk);
  HomePass pass;
  pass.chunk = chunk;
  pass.range = kept;
  pass.cause = RunCause::kGradient;
  pass.passing = &passing;
  pass.uses = {{kind, first ? WindowMode::kWrite : WindowMode::kReadWrite}};
  pass.on_device = [&](const StateBytes& at) {
    Device& device = pools_->device();
    if (first) {
      device.Copy(*device_lane_, at.of(kind), at.passing, bytes,
                  CopyKind::kWithinDevice);
    } else {
      device.AddInto(*device_lane_, at.of(kind), at.passing, dtype,
                     Elements(bytes.count() * 8 / DTypeBits(dtype)));
    }
    if (squares) AddDeviceSquares(chunk, kept, at.of(kind));
  };
  pass.on_host = [&](ShardRange part) {
    const Bytes size = RangeBytes(chunk, kind, part).size();
    return HomePass::HostWork{
        DepositBytes(size, /*adds=*/true) +
            (squares ? SquaresBytes(size) : Bytes(0)),
        [this, chunk, part, squares, dtype](const StateBytes& at) {
          AddInto(at.of(StateKind::kGrad), at.passing, dtype,
                  (part.end - part.begin).count());
          if (squares) AddHostSquares(chunk, part, at.of(StateKind::kGrad));
        }};
  };
  return RunAtHome(std::move(pass));
}

}  // namespace castor
