// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstring>
#include <utility>
#include <vector>

#include "collectives/zero_engine_impl.h"
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
  if (first && !there) engine_copies_ += store_->bytes(chunk, kind);
  device_lane_->Wait(reduced);
  if (!there) device_lane_->Wait(store_->WriteReady(chunk, kind));
  device_lane_->Run([this, chunk, home, from, first, there,
                     dtype = layout_->dtype(chunk),
                     bytes = store_->bytes(chunk, kind),
                     squares = CountsNorm() && last_micro_batch_] {
    if (!there) {
      const int64_t count = bytes.count() * 8 / DTypeBits(dtype);
      if (first) {
        std::memcpy(home, from, static_cast<size_t>(bytes.count()));
      } else {
        AddInto(home, from, dtype, count);
      }
    }
    if (squares) AddChunkSquares(chunk, home, &device_squares_);
    return OkStatus();
  });
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
    device_lane_->Run([this, chunk, from] {
      AddChunkSquares(chunk, from, &device_squares_);
      return OkStatus();
    });
    const Event both[] = {free_after, device_lane_->Record()};
    return AllOf(both);
  }
  // The new part and the sum so far, together.
  WindowRequest requests[2];
  for (WindowRequest& request : requests) {
    request.chunk = chunk;
    request.state = kind;
    request.range = whole;
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
  host_lane_->Run(
      [this, chunk, squares, total = total.bytes(), part = part.bytes(),
       dtype = layout_->dtype(chunk),
       count = bytes.count() * 8 / DTypeBits(layout_->dtype(chunk))] {
        AddInto(total.get(), part.get(), dtype, count);
        if (squares) AddChunkSquares(chunk, total.get(), &host_squares_);
        return OkStatus();
      });
  const Event added = host_lane_->Record();
  store_->CloseWindow(std::move(total), added);
  store_->CloseWindow(std::move(part), added);
  return copied;
}

void ZeroEngine::Impl::AddChunkSquares(ChunkId chunk, const std::byte* data,
                                       ExactSum* sum) const {
  const DType dtype = layout_->dtype(chunk);
  const ShardRange counted = sharding_.counted(*layout_, chunk);
  const std::byte* start =
      data + RangeBytes(chunk, StateKind::kGrad, counted).begin.count();
  for (const Segment& segment : Segments(chunk, counted)) {
    AddSquares(start + BytesOf(Elements(segment.offset), dtype).count(), dtype,
               segment.count, sum);
  }
}

// Chunks without a gradient in the last micro-batch, whose sums were complete
// before.
void ZeroEngine::Impl::CountLeftSquares() {
  const StateKind kind = StateKind::kGrad;
  for (size_t c = 0; c < grads_.size(); ++c) {
    if (!grads_[c].valid || grads_[c].counted) continue;
    const ChunkId chunk(static_cast<int32_t>(c));
    if (store_->home(chunk, kind) == Tier::kDevice) {
      device_lane_->Wait(store_->written(chunk, kind));
      device_lane_->Run([this, chunk, data = store_->device_data(chunk, kind)] {
        AddChunkSquares(chunk, data, &device_squares_);
        return OkStatus();
      });
      store_->AddReader(chunk, kind, device_lane_->Record());
      continue;
    }
    HostWindow window =
        store_->OpenWindow(chunk, kind, {Bytes(0), store_->bytes(chunk, kind)},
                           WindowMode::kRead, RunCause::kGradient);
    host_lane_->Wait(window.ready);
    host_lane_->Run([this, chunk, data = window.bytes()] {
      AddChunkSquares(chunk, data.get(), &host_squares_);
      return OkStatus();
    });
    store_->CloseWindow(std::move(window), host_lane_->Record());
  }
}

}  // namespace castor
