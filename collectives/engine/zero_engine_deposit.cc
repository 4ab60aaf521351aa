// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <utility>
#include <vector>

#include "collectives/engine/zero_engine_impl.h"
#include "offload/kernels/reduce.h"

namespace castor {

Event ZeroEngine::Impl::Deposit(ChunkId chunk, const std::byte* from,
                                const Event& reduced) {
  const bool first = !grads_[chunk.index()].valid;
  return store_->home(chunk, StateKind::kGrad) == Tier::kDevice
             ? DepositOnDevice(chunk, from, reduced, first)
             : DepositOnHost(chunk, from, reduced, first);
}

Event ZeroEngine::Impl::DepositOnDevice(ChunkId chunk, const std::byte* from,
                                        const Event& reduced, bool first) {
  const StateKind kind = StateKind::kGrad;
  std::byte* home = store_->device_data(chunk, kind);
  const bool there = from == home;
  if (there) {
    store_->SetWritten(chunk, kind, reduced);
    if (!CountsNorm() || !last_micro_batch_) return reduced;
  }
  device_lane_->Wait(reduced);
  if (!there) {
    Device& device = pools_->device();
    const Bytes bytes = store_->bytes(chunk, kind);
    device_lane_->Wait(store_->WriteReady(chunk, kind));
    if (first) {
      engine_copies_ += bytes;
      device.Copy(*device_lane_, home, from, bytes, CopyKind::kWithinDevice);
    } else {
      const DType dtype = GradDType(chunk);
      device.AddInto(*device_lane_, home, from, dtype,
                     Elements(bytes.count() * 8 / DTypeBits(dtype)));
    }
  }
  if (CountsNorm() && last_micro_batch_) AddDeviceSquares(chunk, home);
  Event done = device_lane_->Record();
  if (there) {
    store_->AddReader(chunk, kind, done);
    return reduced;
  }
  store_->SetWritten(chunk, kind, done);
  return done;
}

Event ZeroEngine::Impl::DepositOnHost(ChunkId chunk, const std::byte* from,
                                      const Event& reduced, bool first) {
  const StateKind kind = StateKind::kGrad;
  const Bytes bytes = store_->bytes(chunk, kind);
  const ByteRange whole{Bytes(0), bytes};
  const bool squares = CountsNorm() && last_micro_batch_;
  if (first) {
    Event free_after =
        store_->Store(chunk, kind, whole, from, reduced, RunCause::kGradient);
    if (!squares) return free_after;
    device_lane_->Wait(reduced);
    AddDeviceSquares(chunk, from);
    const Event both[] = {free_after, device_lane_->Record()};
    return AllOf(both);
  }
  std::vector<Event> copied;
  const ShardRange kept = sharding_.kept(kind, *layout_, chunk);
  for (const ShardRange& range : WithinPieces(chunk, kept)) {
    const Bytes begin = RangeBytes(chunk, kind, range).begin;
    copied.push_back(AddOnHost(chunk, range, from + begin.count(), reduced));
  }
  return copied.size() == 1 ? copied.front() : AllOf(copied);
}

Event ZeroEngine::Impl::AddOnHost(ChunkId chunk, ShardRange range,
                                  const std::byte* from, const Event& reduced) {
  const StateKind kind = StateKind::kGrad;
  const bool squares = CountsNorm() && last_micro_batch_;
  // The new part and the sum so far, together.
  WindowRequest requests[2];
  for (WindowRequest& request : requests) {
    request.chunk = chunk;
    request.state = kind;
    request.range = RangeBytes(chunk, kind, range);
    request.cause = RunCause::kGradient;
  }
  requests[0].mode = WindowMode::kScratch;
  requests[0].from = from;
  requests[0].after = reduced;
  requests[1].mode = WindowMode::kReadWrite;
  Result<std::vector<HostWindow>> opened = store_->OpenWindows(requests);
  if (!opened.ok()) return Event::Failed(Fail(opened.status()));
  HostWindow& part = opened->front();
  HostWindow& total = opened->back();
  const Event copied = part.ready;
  host_lane_->Wait(copied);
  host_lane_->Wait(total.ready);
  const Bytes size = requests[0].range.size();
  QueuePass(chunk, HostPass::kMemory,
            DepositBytes(size, /*adds=*/true) +
                (squares ? SquaresBytes(size) : Bytes(0)),
            [this, chunk, range, squares, total = total.bytes(),
             part = part.bytes(), dtype = GradDType(chunk)] {
              AddInto(total.get(), part.get(), dtype,
                      (range.end - range.begin).count());
              if (squares) AddHostSquares(chunk, range, total.get());
              return OkStatus();
            });
  const Event added = host_lane_->Record();
  store_->CloseWindow(std::move(total), added);
  store_->CloseWindow(std::move(part), added);
  return copied;
}

}  // namespace castor
