// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "collectives/engine/zero_engine_impl.h"
#include "collectives/world/value_hash.h"

namespace castor {
namespace {

// A hash of what ranks had gradients of goes in parts, so that squares and
// their sums stay small.
constexpr int kHashParts = 3;
constexpr int kHashPartBits = 21;
static_assert(kStepWords == 2 + 2 * kHashParts);

// In 24 bits, so that squares and their sums stay small.
uint64_t StepHash(uint64_t rates, double loss_scale, int64_t micro_batches,
                  double max_norm) {
  internal::ValueHash hash;
  hash.Add(max_norm);
  hash.Add(rates);
  hash.Add(loss_scale);
  hash.Add(micro_batches);
  return hash.value() >> 40;
}

}  // namespace

Result<StepResult> ZeroEngine::Impl::Step(double lr) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  if (micro_batches_ == 0) {
    return FailedPrecondition(
        "there is nothing to step: call BeginMicroBatch() and hand back "
        "gradients first");
  }
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen("Step()"));
  CASTOR_RETURN_IF_ERROR(CheckLearningRate(lr));
  CASTOR_RETURN_IF_ERROR(RequireUpdate());
  if (early_lr_ && *early_lr_ != lr) {
    return InvalidArgument(
        fmt::format("a step cannot be of rate {}: UpdateEarly() was told {}, "
                    "and chunks are "
                    "updated with that",
                    lr, *early_lr_));
  }
  CASTOR_RETURN_IF_ERROR(FlushGrads());
  ending_moment_ = manager_->moment();
  CASTOR_RETURN_IF_ERROR(manager_->EndStep());
  for (Param& param : params_) param.had_grad = param.used;
  updated_early_ = early_lr_.has_value();
  if (recounts_) CASTOR_RETURN_IF_ERROR(CountAnew());
  CASTOR_ASSIGN_OR_RETURN(const Agreement agreed, Agree(lr));

  // The average, the unscaling and the clip are one factor, one multiply.
  const double average = AveragingFactor();
  StepResult result;
  Status updated;
  result.loss_scale = scaler_.scale();
  if (CountsNorm()) {
    result.grad_norm = std::sqrt(agreed.squares) * average;
    result.applied = !agreed.overflowed;
  }
  const double max_norm = clipped_ ? clipped_->max_norm : options_.clip_norm;
  if (max_norm > 0) {
    result.clip_factor = std::min(1.0, max_norm / (result.grad_norm + 1e-6));
  }
  if (result.applied) {
    const float factor = static_cast<float>(result.clip_factor * average);
    for (size_t p = 0; p < params_.size(); ++p) {
      const ChunkId chunk = layout_->places()[p].chunk;
      const bool updated = chunk.valid() && grads_[chunk.index()].updated;
      params_[p].steps += params_[p].used && !updated;
    }
    for (const ChunkId chunk : UpdateOrder()) {
      const ChunkGrad& grad = grads_[chunk.index()];
      if (!grad.valid) continue;
      if (!grad.updated) UpdateChunk(chunk, factor, lr);
      if (sharding_.refreshes()) RefreshReplicas(chunk);
    }
    updated = FinishProgramUpdate();
    CASTOR_RETURN_IF_ERROR(Health());
    // A lease that outlives the step shows what is updated: all of it.
    for (size_t c = 0; c < grads_.size(); ++c) {
      if (held_in_place_[c] == 0 || !grads_[c].valid) continue;
      const ChunkId chunk(static_cast<int32_t>(c));
      CASTOR_RETURN_IF_ERROR(store_->written(chunk, StateKind::kParam).Wait());
    }
  }
  if (!result.applied) {
    CASTOR_ASSIGN_OR_RETURN(result.not_finite, FirstNotFinite());
  }
  if (!scaler_.Update(!result.applied)) {
    options_.log->WarnOnce(
        "loss scale",
        fmt::format("gradients overflow at a loss scale of {}, the least that "
                    "the options allow: steps are skipped until they do not",
                    scaler_.scale()));
  }
  if (!result.applied && grads_in_place()) RestoreLostHomes();
  for (ChunkGrad& grad : grads_) grad = ChunkGrad();
  for (Param& param : params_) param.used = false;
  micro_batches_ = 0;
  last_micro_batch_ = false;
  early_lr_.reset();
  clipped_.reset();
  if (options_.recorder != nullptr) {
    RunEvent event = EventFor(RunEventKind::kStep, ChunkId(), RunCause::kNone);
    event.moment = -1;
    event.begin_ns = step_begin_ns_;
    event.end_ns = options_.clock->NowNs();
    options_.recorder->Record(event);
  }
  CASTOR_RETURN_IF_ERROR(AdvanceSave());
  ending_moment_ = -1;
  result.step = ++step_;
  DescribeTrace();
  store_->BeginStep(static_cast<int32_t>(step_ + 1));
  manager_->BeginStep(static_cast<int32_t>(step_ + 1));
  CASTOR_RETURN_IF_ERROR(Health());
  CASTOR_RETURN_IF_ERROR(updated);
  return result;
}

Status ZeroEngine::Impl::UpdateEarly(double lr) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_RETURN_IF_ERROR(CheckLearningRate(lr));
  CASTOR_RETURN_IF_ERROR(RequireUpdate());
  if (micro_batches_ == 0) {
    return FailedPrecondition(
        "there is nothing to update outside a step: call BeginMicroBatch() "
        "first");
  }
  if (CountsNorm()) {
    return FailedPrecondition(
        "nothing is updated before all gradients are known where the norm is "
        "clipped or the loss is scaled: leave UpdateEarly() away");
  }
  early_lr_ = lr;
  return OkStatus();
}

Status ZeroEngine::Impl::SetLearningRate(std::string_view group, double lr) {
  if (early_lr_) {
    return FailedPrecondition(
        "chunks of this step are updated already, as UpdateEarly() allowed: "
        "set "
        "rates before it, or after Step()");
  }
  return groups_.SetLearningRate(group, lr);
}

Status ZeroEngine::Impl::SetHyperParameters(std::string_view group,
                                            const HyperParameters& numbers) {
  if (early_lr_) {
    return FailedPrecondition(
        "chunks of this step are updated already, as UpdateEarly() allowed: "
        "set "
        "hyper-parameters before it, or after Step()");
  }
  return groups_.SetHyperParameters(group, numbers);
}

Result<double> ZeroEngine::Impl::ClipGradients(double max_norm) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen("ClipGradients()"));
  if (!CountsNorm()) {
    return FailedPrecondition(
        "the norm is not counted, so there is nothing to clip by: set "
        "count_norm, clip_norm or loss scaling in the options");
  }
  if (micro_batches_ == 0 || !last_micro_batch_) {
    return FailedPrecondition(
        "gradients are clipped after the last micro-batch: begin it as the "
        "last one, and hand back its gradients first");
  }
  if (!(max_norm > 0)) {
    return InvalidArgument(fmt::format(
        "a norm of at most {} has no meaning: give more than 0", max_norm));
  }
  if (!clipped_) {
    CASTOR_RETURN_IF_ERROR(FlushGrads());
    if (recounts_) CASTOR_RETURN_IF_ERROR(CountAnew());
    agreed_words_.assign(ExactSum::kWords, 0);
    CASTOR_RETURN_IF_ERROR(AddUpOwnSquares());
    CASTOR_RETURN_IF_ERROR(AddUpAgreedWords());
    clipped_ = {TotalOfSquares(), 0};
  }
  clipped_->max_norm = max_norm;
  return std::sqrt(clipped_->norm.squares) * AveragingFactor();
}

Status ZeroEngine::Impl::RequireNotClipped(ParamId param) const {
  if (!clipped_) [[likely]] {
    return OkStatus();
  }
  return FailedPrecondition(
      fmt::format("the norm of this step is taken, as ClipGradients() asked: "
                  "the gradient of "
                  "{} comes before that",
                  Name(param)));
}

Status ZeroEngine::Impl::AddUpOwnSquares() {
  CountLeftSquares();
  for (ChunkGrad& grad : grads_) grad.counted = grad.counted || grad.valid;
  const auto take = [this] {
    ExactSum sum = TakeSquares();
    std::copy(sum.words().begin(), sum.words().end(), agreed_words_.begin());
    return OkStatus();
  };
  // A sum that was agreed on has no reduction that may fail still.
  const Event counted[] = {reduce_lane_->Record(), FetchDeviceSquares(),
                           host_lane_->Record()};
  if (comm_->world() == 1 && device_lane_->runs_on_host()) {
    // Nobody else waits, so a lane in between would only take time. To wait
    // for a stream would keep the thread in the driver.
    CASTOR_RETURN_IF_ERROR(AllOf(counted).Wait());
    return take();
  }
  for (const Event& event : counted) comm_lane_->Wait(event);
  comm_lane_->Run(take);
  return OkStatus();
}

ZeroEngine::Impl::Agreement ZeroEngine::Impl::TotalOfSquares() const {
  ExactSum total;
  std::copy_n(agreed_words_.begin(), ExactSum::kWords, total.words().begin());
  return {total.Total(), total.overflowed()};
}

Status ZeroEngine::Impl::RestoreLossScale(const LossScaleState& state) {
  if (micro_batches_ > 0) {
    return FailedPrecondition(
        "a step is half done, with gradients of another loss scale: call "
        "Step() "
        "or Abandon() before RestoreLossScale()");
  }
  return scaler_.Restore(state);
}

// The one thing a step waits for, in one all-reduce: the sum of squares,
// whether all make the same step, and whether all had gradients of the same
// parameters in the same order. Exact integers add to the same total in any
// order. Only ranks that differ ask which they were.
Result<ZeroEngine::Impl::Agreement> ZeroEngine::Impl::Agree(double lr) {
  const bool counts = CountsNorm() && !clipped_;
  const size_t words = counts ? ExactSum::kWords : 0;
  std::vector<ChunkId> order = turns_.Proposed();
  agreed_words_.assign(words, 0);
  PutHash(StepHash(groups_.HashOfRates(lr), scaler_.scale(), micro_batches_,
                   clipped_ ? clipped_->max_norm : 0));
  internal::ValueHash hash;
  for (const Param& param : params_) hash.Add(param.used);
  for (const ChunkId chunk : order) hash.Add(chunk.value());
  for (int part = 0; part < kHashParts; ++part) {
    PutHash(hash.value() >> (part * kHashPartBits) &
            ((uint64_t{1} << kHashPartBits) - 1));
  }
  CASTOR_CHECK_EQ(std::ssize(agreed_words_),
                  static_cast<int64_t>(words) + kStepWords);
  if (counts) {
    CASTOR_RETURN_IF_ERROR(AddUpOwnSquares());
  } else {
    comm_lane_->Wait(reduce_lane_->Record());
    comm_lane_->Wait(device_lane_->Record());
    // Not for updates that have begun, which may take as long as a backward.
    if (!early_lr_) comm_lane_->Wait(host_lane_->Record());
  }
  CASTOR_RETURN_IF_ERROR(AddUpAgreedWords());
  if (!SameHash(words)) {
    return Fail(FailedPrecondition(fmt::format(
        "the ranks make different steps: this one makes step {} with learning "
        "rate {} over {} micro-batches and loss scale {}; these, the numbers "
        "of groups and what gradients are clipped to must be the same on every "
        "rank",
        step_ + 1, lr, micro_batches_, scaler_.scale())));
  }
  bool same = true;
  for (size_t part = 1; part <= kHashParts; ++part) {
    same = same && SameHash(words + 2 * part);
  }
  Agreement agreed;
  if (clipped_) agreed = clipped_->norm;
  if (counts) agreed = TotalOfSquares();
  if (!same) CASTOR_RETURN_IF_ERROR(AgreeOnGradients(order));
  turns_.Adopt(std::move(order));
  return agreed;
}

void ZeroEngine::Impl::PutHash(uint64_t hash) {
  agreed_words_.push_back(hash);
  agreed_words_.push_back(hash * hash);
}

// W numbers are equal just when W times the sum of their squares is the square
// of their sum.
bool ZeroEngine::Impl::SameHash(size_t at) const {
  return static_cast<uint64_t>(comm_->world()) * agreed_words_[at + 1] ==
         agreed_words_[at] * agreed_words_[at];
}

Status ZeroEngine::Impl::AddUpAgreedWords() {
  if (comm_->world() == 1) {
    CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
    Status ended = comm_->Health();
    return ended.ok() ? ended : Fail(std::move(ended));
  }
  comm_->AllReduce(*comm_lane_, agreed_words_.data(),
                   Elements(static_cast<int64_t>(agreed_words_.size())),
                   DType::kU64, ReduceOp::kSum,
                   {ChunkId(), SharedMoment(), "step"});
  return comm_lane_->Record().Wait();
}

// How many ranks had a gradient of each parameter, as many counts to a word as
// fit; and rank 0's order.
Status ZeroEngine::Impl::AgreeOnGradients(std::vector<ChunkId>& order) {
  const auto bits = static_cast<size_t>(
      std::bit_width(static_cast<unsigned>(comm_->world())));
  const size_t counts = 64 / bits;  // in a word
  agreed_words_.assign((params_.size() + counts - 1) / counts, 0);
  for (size_t p = 0; p < params_.size(); ++p) {
    agreed_words_[p / counts] |= uint64_t{params_[p].used}
                                 << (p % counts * bits);
  }
  CASTOR_RETURN_IF_ERROR(AddUpAgreedWords());
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (size_t p = 0; p < params_.size(); ++p) {
    params_[p].used =
        (agreed_words_[p / counts] >> (p % counts * bits) & mask) != 0;
  }
  if (!turns_.any()) return OkStatus();
  std::vector<int32_t> numbers;
  for (const ChunkId chunk : order) numbers.push_back(chunk.value());
  comm_->Broadcast(*comm_lane_, numbers.data(), Bytes(std::ssize(numbers) * 4),
                   0, {ChunkId(), SharedMoment(), "order of gradients"});
  CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
  for (size_t i = 0; i < order.size(); ++i) order[i] = ChunkId(numbers[i]);
  return OkStatus();
}

}  // namespace castor
