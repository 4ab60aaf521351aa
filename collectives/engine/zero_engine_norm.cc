// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Sums of squares, for the global norm. The sums are exact, so the norm has the
// same bits wherever a square is counted: on the device or on the host.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "collectives/engine/zero_engine_impl.h"

namespace castor {

// The elements of parameters in `chunk` that this rank counts. A run is as long
// as no padding lies between parameters: its blocks of 64 elements then are
// those of its parameters, which begin at such a block of the chunk.
std::vector<ShardRange> ZeroEngine::Impl::CountedRuns(ChunkId chunk,
                                                      ShardRange within) const {
  constexpr Elements kBlock{64};
  ShardRange counted = sharding_.counted(*layout_, chunk);
  counted = {std::max(counted.begin, within.begin),
             std::min(counted.end, within.end)};
  std::vector<ShardRange> runs;
  for (const Segment& segment : Segments(chunk, counted)) {
    const Elements begin = counted.begin + Elements(segment.offset);
    const Elements end = begin + Elements(segment.count);
    if (!runs.empty() && runs.back().end == begin &&
        (begin - runs.back().begin) % kBlock == Elements(0)) {
      runs.back().end = end;
    } else {
      runs.push_back({begin, end});
    }
  }
  return runs;
}

void ZeroEngine::Impl::AddHostSquares(ChunkId chunk, ShardRange range,
                                      const std::byte* data) {
  const StateKind kind = StateKind::kGrad;
  const Bytes start = RangeBytes(chunk, kind, range).begin;
  for (const ShardRange& run : CountedRuns(chunk, range)) {
    AddSquares(data + (RangeBytes(chunk, kind, run).begin - start).count(),
               GradDType(chunk), (run.end - run.begin).count(), &host_squares_);
  }
}

void ZeroEngine::Impl::AddDeviceSquares(ChunkId chunk, const std::byte* data) {
  CASTOR_CHECK(norm_slot_.valid());
  for (const ShardRange& run :
       CountedRuns(chunk, sharding_.kept(StateKind::kGrad, *layout_, chunk))) {
    pools_->device().AddSquares(
        *device_lane_,
        data + RangeBytes(chunk, StateKind::kGrad, run).begin.count(),
        GradDType(chunk), run.end - run.begin,
        reinterpret_cast<uint64_t*>(norm_slot_.data));
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
      AddDeviceSquares(chunk, store_->device_data(chunk, kind));
      store_->AddReader(chunk, kind, device_lane_->Record());
      continue;
    }
    for (const ShardRange& range :
         WithinPieces(chunk, sharding_.kept(kind, *layout_, chunk))) {
      const ByteRange bytes = RangeBytes(chunk, kind, range);
      HostWindow window = store_->OpenWindow(
          chunk, kind, bytes, WindowMode::kRead, RunCause::kGradient);
      host_lane_->Wait(window.ready);
      QueuePass(chunk, HostPass::kMemory, SquaresBytes(bytes.size()),
                [this, chunk, range, data = window.bytes()] {
                  AddHostSquares(chunk, range, data.get());
                  return OkStatus();
                });
      store_->CloseWindow(std::move(window), host_lane_->Record());
    }
  }
}

Event ZeroEngine::Impl::FetchDeviceSquares() {
  if (!norm_slot_.valid()) return device_lane_->Record();
  pools_->device().Copy(*device_lane_, norm_words_.data(), norm_slot_.data,
                        norm_words_.size(), CopyKind::kFromDevice);
  Event fetched = device_lane_->Record();
  pools_->device().Zero(*device_lane_, norm_slot_.data, norm_slot_.size);
  return fetched;
}

ExactSum ZeroEngine::Impl::TakeSquares() {
  ExactSum sum;
  if (norm_words_.data() != nullptr) {
    std::copy_n(reinterpret_cast<const uint64_t*>(norm_words_.data()),
                ExactSum::kWords, sum.words().begin());
  }
  sum.Merge(host_squares_);
  host_squares_ = ExactSum();
  return sum;
}

void ZeroEngine::Impl::ResetSquares() {
  host_squares_ = ExactSum();
  if (!norm_slot_.valid()) return;
  pools_->device().Zero(*device_lane_, norm_slot_.data, norm_slot_.size);
}

Result<ParamId> ZeroEngine::Impl::FirstNotFinite() {
  std::vector<float> values;
  for (size_t p = 0; p < params_.size(); ++p) {
    const ParamId param(static_cast<int32_t>(p));
    const ChunkId chunk = layout_->place(param).chunk;
    if (!params_[p].used || !chunk.valid() || !grads_[chunk.index()].valid) {
      continue;
    }
    values.resize(static_cast<size_t>(params_[p].size.count()));
    CASTOR_RETURN_IF_ERROR(ReadState(param, StateKind::kGrad, 1.0f, values,
                                     "find what overflows"));
    if (!std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); })) {
      return param;
    }
  }
  return ParamId();
}

Status ZeroEngine::Impl::CountAnew() {
  CASTOR_RETURN_IF_ERROR(host_lane_->Record().Wait());
  ResetSquares();
  for (ChunkGrad& grad : grads_) grad.counted = false;
  recounts_ = false;
  return OkStatus();
}

}  // namespace castor
