// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/access_recorder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "chunk/base/check.h"
#include "placement/trace/missing_grads.h"

namespace castor {

AccessRecorder::AccessRecorder(const ChunkLayout* layout, bool whole_grads,
                               bool in_place)
    : layout_(layout),
      whole_grads_(whole_grads),
      in_place_(in_place),
      gradients_(layout->places().size(), Gradient::kIdle),
      had_grad_(layout->places().size(), false),
      open_(layout->chunks().size(), false),
      params_left_(layout->chunks().size(), 0),
      last_hold_(layout->chunks().size(), 0) {}

void AccessRecorder::Add(AccessKind kind, ChunkId chunk) {
  trace_.accesses.push_back({kind, chunk});
  trace_.compute_ns.push_back(0);
  leased_.push_back(leased_now_);
}

void AccessRecorder::AddUse(AccessKind kind, ChunkId chunk, bool evaluating) {
  if (!evaluating) return Add(kind, chunk);
  evaluation_->accesses.push_back({kind, chunk});
  evaluation_->compute_ns.push_back(0);
}

void AccessRecorder::BeginMicroBatch(bool last) {
  if (Reduces()) CloseGrads();
  EndMicroBatch();
  turns_.BeginMicroBatch();
  in_micro_batch_ = true;
  last_micro_batch_ = last;
}

int AccessRecorder::Hold(std::span<const ParamId> params) {
  Held held{{}, evaluation_.has_value()};
  ++holds_made_;
  for (const ParamId param : params) {
    const ChunkId chunk = layout_->place(param).chunk;
    if (!chunk.valid() || last_hold_[chunk.index()] == holds_made_) continue;
    last_hold_[chunk.index()] = holds_made_;
    AddUse(AccessKind::kUse, chunk, held.evaluating);
    held.chunks.push_back(chunk);
  }
  holds_.push_back(std::move(held));
  return static_cast<int>(holds_.size()) - 1;
}

void AccessRecorder::Release(int hold) {
  std::optional<Held>& held = holds_[static_cast<size_t>(hold)];
  CASTOR_CHECK(held.has_value());
  for (const ChunkId chunk : held->chunks) {
    AddUse(AccessKind::kUseEnd, chunk, held->evaluating);
  }
  held.reset();
  // Numbers are used again as far as nothing behind them is held.
  while (!holds_.empty() && !holds_.back()) holds_.pop_back();
}

void AccessRecorder::OpenGrad(ParamId param) {
  Gradient& gradient = gradients_[param.index()];
  CASTOR_CHECK(gradient != Gradient::kReady);
  gradient = Gradient::kOpen;
  had_grad_[param.index()] = true;
  const ChunkId chunk = layout_->place(param).chunk;
  if (!chunk.valid() || params_left_[chunk.index()] > 0) return;
  if (!open_[chunk.index()]) OpenChunk(chunk);
  for (const ParamId other : layout_->chunk(chunk).params) {
    params_left_[chunk.index()] +=
        gradients_[other.index()] != Gradient::kReady;
  }
}

void AccessRecorder::OpenChunk(ChunkId chunk) {
  if (in_place_) Add(AccessKind::kUse, chunk);
  Add(AccessKind::kGradOpen, chunk);
  open_[chunk.index()] = true;
}

void AccessRecorder::GradReady(ParamId param) {
  Gradient& gradient = gradients_[param.index()];
  CASTOR_CHECK(gradient == Gradient::kOpen);
  gradient = Gradient::kReady;
  const ChunkId chunk = layout_->place(param).chunk;
  if (!chunk.valid() || --params_left_[chunk.index()] > 0) return;
  if (!Reduces()) return;
  if (!turns_.any()) return CloseGrad(chunk);
  turns_.Complete(chunk);
  CloseInTurn();
  if (open_[chunk.index()]) {
    trace_.waiting.push_back(
        {static_cast<int32_t>(trace_.accesses.size()) - 1, chunk});
  }
}

void AccessRecorder::CloseGrad(ChunkId chunk) {
  open_[chunk.index()] = false;
  if (in_place_) Add(AccessKind::kUseEnd, chunk);
  Add(AccessKind::kGradClose, chunk);
}

void AccessRecorder::CloseInTurn() {
  while (const std::optional<ChunkId> chunk = turns_.TakeNext()) {
    CloseGrad(*chunk);
  }
}

void AccessRecorder::CloseGrads() {
  if (turns_.any()) {
    if (!in_micro_batch_) return;
    for (const ChunkId chunk : turns_.order()) {
      if (open_[chunk.index()] && !turns_.complete(chunk)) {
        turns_.Complete(chunk);
      }
    }
    CloseInTurn();
    while (turns_.Awaited()) {
      const ChunkId chunk = turns_.TakeAwaited();
      OpenChunk(chunk);
      CloseGrad(chunk);
      CloseInTurn();
    }
    return;
  }
  for (size_t c = 0; c < open_.size(); ++c) {
    if (open_[c]) CloseGrad(ChunkId(static_cast<int32_t>(c)));
  }
}

void AccessRecorder::EndMicroBatch() {
  std::fill(params_left_.begin(), params_left_.end(), 0);
  std::fill(gradients_.begin(), gradients_.end(), Gradient::kIdle);
}

void AccessRecorder::BeginEvaluation() {
  CASTOR_CHECK(!evaluation_.has_value());
  evaluation_.emplace().moment = static_cast<int32_t>(trace_.accesses.size());
}

void AccessRecorder::EndEvaluation() {
  CASTOR_CHECK(evaluation_.has_value());
  for (const std::optional<Held>& held : holds_) {
    CASTOR_CHECK(!held || !held->evaluating);
  }
  if (!evaluation_->accesses.empty()) {
    trace_.evaluations.push_back(*std::move(evaluation_));
  }
  evaluation_.reset();
}

void AccessRecorder::SetLeased(Bytes bytes) {
  leased_now_ = bytes;
  Bytes& most = leased_.empty() ? leased_before_ : leased_.back();
  most = std::max(most, bytes);
}

void AccessRecorder::Compute(int64_t ns) {
  CASTOR_CHECK_GE(ns, 0);
  timed_ = true;
  if (evaluation_ && !evaluation_->compute_ns.empty()) {
    evaluation_->compute_ns.back() += ns;
    return;
  }
  (trace_.compute_ns.empty() ? compute_before_ : trace_.compute_ns.back()) +=
      ns;
}

StepTrace AccessRecorder::Finish() {
  CloseGrads();
  EndMicroBatch();
  if (turns_.any()) turns_.Adopt(turns_.Proposed());
  last_micro_batch_ = false;
  in_micro_batch_ = false;
  CASTOR_CHECK(holds_.empty());
  CASTOR_CHECK(!evaluation_.has_value());
  StepTrace done = std::exchange(trace_, StepTrace());
  if (!leased_.empty()) {
    leased_.back() = std::max(leased_.back(), leased_before_);
    done.compute_ns.back() += compute_before_;
  }
  Bytes before;
  for (size_t i = 0; i < leased_.size(); ++i) {
    if (leased_[i] == before) continue;
    before = leased_[i];
    done.leases.push_back({static_cast<int32_t>(i), before});
  }
  if (!timed_) {
    done.compute_ns.clear();
    for (EvaluationPass& pass : done.evaluations) pass.compute_ns.clear();
  }
  done.missing_grads = MissingGradsOf(
      *layout_, done.accesses,
      [this](ParamId param) { return had_grad_[param.index()]; },
      [](ParamId) { return std::string(); });
  std::fill(had_grad_.begin(), had_grad_.end(), false);
  leased_.clear();
  leased_before_ = leased_now_;
  timed_ = false;
  compute_before_ = 0;
  return done;
}

}  // namespace castor
