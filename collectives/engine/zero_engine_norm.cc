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

using internal::HomePass;
using internal::StateBytes;

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

template <typename Add>
void ZeroEngine::Impl::ForSquares(ChunkId chunk, ShardRange range,
                                  const std::byte* data, const Add& add) {
  const StateKind kind = StateKind::kGrad;
  const Bytes start = RangeBytes(chunk, kind, range).begin;
  for (const ShardRange& run : CountedRuns(chunk, range)) {
    add(data + (RangeBytes(chunk, kind, run).begin - start).count(),
        run.end - run.begin);
  }
}

void ZeroEngine::Impl::AddHostSquares(ChunkId chunk, ShardRange range,
                                      const std::byte* data) {
  ForSquares(chunk, range, data, [&](const std::byte* run, Elements count) {
    AddSquares(run, GradDType(chunk), count.count(), &host_squares_);
  });
}

void ZeroEngine::Impl::AddDeviceSquares(ChunkId chunk, ShardRange range,
                                        const std::byte* data) {
  CASTOR_CHECK(norm_slot_.valid());
  ForSquares(chunk, range, data, [&](const std::byte* run, Elements count) {
    pools_->device().AddSquares(*device_lane_, run, GradDType(chunk), count,
                                reinterpret_cast<uint64_t*>(norm_slot_.data));
  });
}

void ZeroEngine::Impl::CountSquares(ChunkId chunk) {
  const StateKind kind = StateKind::kGrad;
  HomePass pass;
  pass.chunk = chunk;
  pass.range = sharding_.kept(kind, *layout_, chunk);
  pass.cause = RunCause::kGradient;
  pass.uses = {{kind, WindowMode::kRead}};
  pass.on_device = [this, chunk, range = pass.range](const StateBytes& at) {
    AddDeviceSquares(chunk, range, at.of(StateKind::kGrad));
  };
  pass.on_host = [this, chunk](ShardRange part) {
    return HomePass::HostWork{
        SquaresBytes(RangeBytes(chunk, StateKind::kGrad, part).size()),
        [this, chunk, part](const StateBytes& at) {
          AddHostSquares(chunk, part, at.of(StateKind::kGrad));
        }};
  };
  RunAtHome(std::move(pass));
}

// Chunks without a gradient in the last micro-batch, whose sums were complete
// before.
void ZeroEngine::Impl::CountLeftSquares() {
  for (size_t c = 0; c < grads_.size(); ++c) {
    if (!grads_[c].valid || grads_[c].counted) continue;
    CountSquares(ChunkId(static_cast<int32_t>(c)));
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
