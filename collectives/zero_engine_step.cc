// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "collectives/zero_engine_impl.h"

namespace castor {
namespace {

// In 24 bits, so that squares and their sums stay small.
uint64_t StepHash(double lr, int64_t micro_batches) {
  uint64_t hash = std::bit_cast<uint64_t>(lr);
  hash ^= static_cast<uint64_t>(micro_batches) * 0x9e3779b97f4a7c15ull;
  hash *= 0xbf58476d1ce4e5b9ull;
  return hash >> 40;
}

}  // namespace

Result<StepResult> ZeroEngine::Impl::Step(double lr) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  if (micro_batches_ == 0) {
    return FailedPrecondition(
        "there is nothing to step: call BeginMicroBatch and hand back "
        "gradients first");
  }
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen("Step"));
  if (!(lr >= 0) || std::isinf(lr)) {
    return InvalidArgument(
        fmt::format("a learning rate of {} has no meaning", lr));
  }
  FlushGrads();
  CASTOR_RETURN_IF_ERROR(manager_->EndStep());
  if (CountsNorm()) CountLeftSquares();
  CASTOR_ASSIGN_OR_RETURN(const Agreement agreed, Agree(lr));

  // The average, the unscaling and the clip are one factor, one multiply.
  const double average = 1.0 / (static_cast<double>(comm_->world()) *
                                static_cast<double>(micro_batches_));
  StepResult result;
  if (CountsNorm()) {
    result.grad_norm = std::sqrt(agreed.squares) * average;
    result.clip_factor =
        std::min(1.0, options_.clip_norm / (result.grad_norm + 1e-6));
    result.applied = !agreed.overflowed;
  }
  if (result.applied) {
    const float factor = static_cast<float>(result.clip_factor * average);
    for (Param& param : params_) param.steps += param.used;
    for (size_t c = 0; c < grads_.size(); ++c) {
      if (grads_[c].valid) {
        UpdateChunk(ChunkId(static_cast<int32_t>(c)), factor, lr);
      }
    }
  }
  for (ChunkGrad& grad : grads_) grad = ChunkGrad();
  for (Param& param : params_) param.used = false;
  micro_batches_ = 0;
  last_micro_batch_ = false;
  if (options_.recorder != nullptr) {
    RunEvent event = EventFor(RunEventKind::kStep, ChunkId(), RunCause::kNone);
    event.moment = -1;
    event.begin_ns = step_begin_ns_;
    event.end_ns = options_.clock->NowNs();
    options_.recorder->Record(event);
  }
  result.step = ++step_;
  store_->BeginStep(static_cast<int32_t>(step_ + 1));
  manager_->BeginStep(static_cast<int32_t>(step_ + 1));
  CASTOR_RETURN_IF_ERROR(Health());
  return result;
}

// The one thing a step waits for, in one all-reduce: the sum of squares, which
// parameters any rank had a gradient for, and whether all make the same step.
// Exact integers add to the same total in any order.
Result<ZeroEngine::Impl::Agreement> ZeroEngine::Impl::Agree(double lr) {
  const size_t words = CountsNorm() ? ExactSum::kWords : 0;
  const size_t used = words + 2;
  agreed_words_.assign(used + params_.size(), 0);
  // W numbers are equal just when W times the sum of their squares is the
  // square of their sum.
  const uint64_t step = StepHash(lr, micro_batches_);
  agreed_words_[words] = step;
  agreed_words_[words + 1] = step * step;
  for (size_t p = 0; p < params_.size(); ++p) {
    agreed_words_[used + p] = params_[p].used ? 1 : 0;
  }
  comm_lane_->Wait(FetchDeviceSquares());
  comm_lane_->Wait(host_lane_->Record());
  comm_lane_->Run([this, words] {
    if (words == 0) return OkStatus();
    ExactSum sum = TakeSquares();
    std::copy(sum.words().begin(), sum.words().end(), agreed_words_.begin());
    return OkStatus();
  });
  comm_->AllReduce(*comm_lane_, agreed_words_.data(),
                   Elements(static_cast<int64_t>(agreed_words_.size())),
                   DType::kU64, ReduceOp::kSum,
                   {ChunkId(), manager_->moment(), "step"});
  CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
  const uint64_t world = static_cast<uint64_t>(comm_->world());
  if (world * agreed_words_[words + 1] !=
      agreed_words_[words] * agreed_words_[words]) {
    return Fail(FailedPrecondition(fmt::format(
        "the ranks make different steps: this one makes step {} with learning "
        "rate {} over {} micro-batches; both must be the same on every rank",
        step_ + 1, lr, micro_batches_)));
  }
  for (size_t p = 0; p < params_.size(); ++p) {
    params_[p].used = agreed_words_[used + p] != 0;
  }
  Agreement agreed;
  if (words > 0) {
    ExactSum total;
    std::copy(agreed_words_.begin(),
              agreed_words_.begin() + static_cast<std::ptrdiff_t>(words),
              total.words().begin());
    agreed.squares = total.Total();
    agreed.overflowed = total.overflowed();
  }
  return agreed;
}

}  // namespace castor
