// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/gradients/gradient_norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"

namespace castor::internal {

// The elements of parameters in `chunk` that this rank counts. A run ends where
// padding lies behind a parameter. Parameters begin at blocks of 64 elements of
// the chunk, so the blocks of a run are the blocks of its parameters.
std::vector<ShardRange> GradientNorm::CountedRuns(ChunkId chunk,
                                                  ShardRange within) const {
  constexpr Elements kBlock{64};
  ShardRange counted = model_.counted(chunk);
  counted = {std::max(counted.begin, within.begin),
             std::min(counted.end, within.end)};
  std::vector<ShardRange> runs;
  for (const Segment& segment : model_.Segments(chunk, counted)) {
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
void GradientNorm::ForSquares(ChunkId chunk, ShardRange range,
                              const std::byte* data, const Add& add) {
  const StateKind kind = StateKind::kGrad;
  const Bytes start = model_.RangeBytes(chunk, kind, range).begin;
  for (const ShardRange& run : CountedRuns(chunk, range)) {
    add(data + (model_.RangeBytes(chunk, kind, run).begin - start).count(),
        run.end - run.begin);
  }
}

void GradientNorm::AddOnHost(ChunkId chunk, ShardRange range,
                             const std::byte* data) {
  ForSquares(chunk, range, data, [&](const std::byte* run, Elements count) {
    AddSquares(run, model_.GradDType(chunk), count.count(), &host_sum_);
  });
}

void GradientNorm::AddOnDevice(ChunkId chunk, ShardRange range,
                               const std::byte* data) {
  CASTOR_CHECK(memory_.norm_slot().valid());
  ForSquares(chunk, range, data, [&](const std::byte* run, Elements count) {
    memory_.device().AddSquares(
        memory_.device_lane(), run, model_.GradDType(chunk), count,
        reinterpret_cast<uint64_t*>(memory_.norm_slot().data));
  });
}

void GradientNorm::AddBorrowed(ParamId param) {
  CASTOR_CHECK(memory_.norm_slot().valid());
  memory_.device().AddSquares(
      memory_.device_lane(), progress_.params[param.index()].borrowed,
      model_.param(param).spec.dtype, model_.param(param).size,
      reinterpret_cast<uint64_t*>(memory_.norm_slot().data));
}

void GradientNorm::Count(ChunkId chunk) {
  if (model_.borrows_grads()) {
    for (const ParamId param : model_.layout->chunk(chunk).params) {
      if (progress_.params[param.index()].borrowed != nullptr) {
        AddBorrowed(param);
      }
    }
    return;
  }
  const StateKind kind = StateKind::kGrad;
  HomePass pass;
  pass.chunk = chunk;
  pass.range = model_.kept(kind, chunk);
  pass.cause = RunCause::kGradient;
  pass.uses = {{kind, WindowMode::kRead}};
  pass.on_device = [this, chunk, range = pass.range](const StateBytes& at) {
    AddOnDevice(chunk, range, at.of(StateKind::kGrad));
  };
  pass.on_host = [this, chunk](ShardRange part) {
    return HomePass::HostWork{
        SquaresBytes(model_.RangeBytes(chunk, StateKind::kGrad, part).size()),
        [this, chunk, part](const StateBytes& at) {
          AddOnHost(chunk, part, at.of(StateKind::kGrad));
        }};
  };
  passes_.Run(std::move(pass));
}

void GradientNorm::Note(ChunkId chunk) {
  if (!counting()) return;
  counted_.resize(model_.chunks());
  recounts_ = recounts_ || counted_[chunk.index()];
  counted_[chunk.index()] = true;
}

Event GradientNorm::FetchDeviceSum() {
  if (!memory_.norm_slot().valid()) return memory_.device_lane().Record();
  memory_.device().Copy(memory_.device_lane(), memory_.norm_words().data(),
                        memory_.norm_slot().data, memory_.norm_words().size(),
                        CopyKind::kFromDevice);
  Event fetched = memory_.device_lane().Record();
  memory_.device().Zero(memory_.device_lane(), memory_.norm_slot().data,
                        memory_.norm_slot().size);
  return fetched;
}

ExactSum GradientNorm::TakeSums() {
  ExactSum sum;
  if (memory_.norm_words().data() != nullptr) {
    std::copy_n(reinterpret_cast<const uint64_t*>(memory_.norm_words().data()),
                ExactSum::kWords, sum.words().begin());
  }
  sum.Merge(host_sum_);
  host_sum_ = ExactSum();
  return sum;
}

void GradientNorm::Reset() {
  host_sum_ = ExactSum();
  counted_.clear();
  recounts_ = false;
  if (!memory_.norm_slot().valid()) return;
  memory_.device().Zero(memory_.device_lane(), memory_.norm_slot().data,
                        memory_.norm_slot().size);
}

void GradientNorm::EndStep() {
  counted_.clear();
  clipped_.reset();
}

Status GradientNorm::CountAnew() {
  CASTOR_RETURN_IF_ERROR(lanes_.host->Record().Wait());
  Reset();
  return OkStatus();
}

Status GradientNorm::RequireNotClipped(ParamId param) const {
  if (!clipped_) [[likely]] {
    return OkStatus();
  }
  return FailedPrecondition(
      fmt::format("the norm of this step is taken, as ClipGradients() asked: "
                  "the gradient of "
                  "{} comes before that",
                  model_.Name(param)));
}

Status GradientNorm::AddUpOwn(const std::vector<ChunkId>& with_gradient,
                              std::vector<uint64_t>* words) {
  if (recounts_) CASTOR_RETURN_IF_ERROR(CountAnew());
  counted_.resize(model_.chunks());
  // Chunks without a gradient in the last micro-batch, whose sums were complete
  // before.
  for (const ChunkId chunk : with_gradient) {
    if (!counted_[chunk.index()]) Count(chunk);
    counted_[chunk.index()] = true;
  }
  const auto take = [this, words] {
    ExactSum sum = TakeSums();
    std::copy(sum.words().begin(), sum.words().end(), words->begin());
    return OkStatus();
  };
  // A sum that was agreed on has no reduction that may fail still.
  const Event counted[] = {lanes_.reduce->Record(), FetchDeviceSum(),
                           lanes_.host->Record()};
  if (model_.comm->world() == 1 && memory_.device_lane().runs_on_host()) {
    // Nobody else waits, so a lane in between would only take time. To wait
    // for a stream would keep the thread in the driver.
    CASTOR_RETURN_IF_ERROR(AllOf(counted).Wait());
    return take();
  }
  for (const Event& event : counted) lanes_.comm->Wait(event);
  lanes_.comm->Run(take);
  return OkStatus();
}

NormOfStep GradientNorm::Total(std::span<const uint64_t> words) {
  ExactSum total;
  std::copy_n(words.begin(), ExactSum::kWords, total.words().begin());
  return {total.Total(), total.overflowed()};
}

}  // namespace castor::internal
