// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A step, call by call: what the trainer holds, hands back, and applies.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "collectives/engine/zero_engine_parts.h"

namespace castor {

Status ZeroEngine::BeginMicroBatch(bool last) {
  auto& [model, health, progress, scalars, memory, lanes, record, rules] =
      parts_->base;
  CASTOR_RETURN_IF_ERROR(parts_->Told(rules.RequireSealed()));
  if (progress.evaluating > 0) {
    return FailedPrecondition(
        "a micro-batch cannot begin inside an evaluation");
  }
  if (model.grads_in_place() && !last) {
    return FailedPrecondition(
        "gradients that reuse the place of parameters cannot be added up over "
        "micro-batches, which need the parameters again: make it the last, or "
        "take another gradient mode");
  }
  if (progress.micro_batches > 0 && progress.last_micro_batch) {
    if (parts_->optimizer.early().allowed() || parts_->norm.clipped() ||
        model.grads_in_place()) {
      return FailedPrecondition(
          "the micro-batch before this one was said to be the last, and its "
          "gradients are used already: call Step()");
    }
    // It was not: what is in the norm changes.
    parts_->norm.Recount();
  }
  if (progress.micro_batches > 0 && parts_->reducer.reduces()) {
    CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->late.Flush()));
  } else {
    parts_->reducer.EndMicroBatch();
  }
  parts_->late.BeginMicroBatch();
  // More is added to the gradients that guesses were of.
  parts_->optimizer.guesses().DropAll();
  progress.ending_moment = -1;  // of a step that failed
  if (progress.micro_batches++ == 0) {
    progress.begin_ns = model.options.clock->NowNs();
    memory.manager().EnterStep();
    parts_->reducer.BeginStep();
    parts_->late.BeginStep();
  }
  progress.last_micro_batch = last;
  return OkStatus();
}

Result<ParamLease> ZeroEngine::Acquire(std::span<const ParamId> params,
                                       Lane& lane) {
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->base.rules.RequireSealed()));
  return parts_->Told(parts_->leases.Acquire(params, lane));
}

void ZeroEngine::WriteBehind(const Event& reads) {
  parts_->gathers.AddReaders(reads);
}

Result<void*> ZeroEngine::Grad(ParamId param, Lane& lane) {
  const internal::EngineModel& model = parts_->base.model;
  internal::GradientReducer& reducer = parts_->reducer;
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->base.rules.RequireSealed()));
  CASTOR_CHECK(param.valid() && param.index() < model.params.size());
  if (model.borrows_grads()) {
    return FailedPrecondition(fmt::format(
        "the gradient of {} stays where the trainer has it, as borrow_grads "
        "asked: call BorrowGrads() with it",
        model.Name(param)));
  }
  CASTOR_RETURN_IF_ERROR(reducer.CheckOpens(param));
  const ChunkId chunk = model.chunk_of(param);
  if (chunk.valid() && reducer.of(chunk).state == GradState::kNone) {
    CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->late.TakeSlot(chunk)));
  }
  CASTOR_ASSIGN_OR_RETURN(std::byte* const grad,
                          parts_->Told(reducer.Open(param, lane)));
  return static_cast<void*>(grad);
}

Status ZeroEngine::GradReady(ParamId param, Lane& lane) {
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->base.rules.RequireSealed()));
  const internal::EngineModel& model = parts_->base.model;
  CASTOR_CHECK(param.valid() && param.index() < model.params.size());
  CASTOR_ASSIGN_OR_RETURN(const bool complete,
                          parts_->reducer.HandBack(param, lane));
  const ChunkId chunk = model.chunk_of(param);
  if (complete) parts_->late.Complete(chunk);
  return chunk.valid() ? parts_->Told(lane.status()) : OkStatus();
}

Status ZeroEngine::BorrowGrads(std::span<const ParamId> params,
                               std::span<std::byte* const> grads, Lane& lane) {
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->base.rules.RequireSealed()));
  CASTOR_CHECK_EQ(params.size(), grads.size());
  if (!borrows_grads()) {
    return FailedPrecondition(
        "the engine has places of its own for gradients: call Grad(), or set "
        "borrow_grads where all states fit on the device");
  }
  return parts_->Told(parts_->reducer.Borrow(params, grads, lane));
}

bool ZeroEngine::borrows_grads() const {
  return parts_->base.model.borrows_grads();
}

Result<MemoryLease> ZeroEngine::Borrow(Bytes size, Lane& lane) {
  auto& [model, health, progress, scalars, memory, lanes, record, rules] =
      parts_->base;
  CASTOR_RETURN_IF_ERROR(parts_->Told(rules.RequireSealed()));
  CASTOR_ASSIGN_OR_RETURN(const LeaseArena::Lease lent,
                          memory.arena().Borrow(size));
  lane.Wait(lent.free_after);
  memory.manager().SetLeased(memory.arena().in_use());
  record.BeginLease(lane, lent.id, size);
  MemoryLease lease;
  lease.engine_ = this;
  lease.lanes_ = {&lane};
  lease.lease_ = lent.id;
  lease.data_ = lent.data;
  lease.size_ = size;
  return lease;
}

void ZeroEngine::Return(int32_t lease, std::span<Lane* const> used_on) {
  auto& [model, health, progress, scalars, memory, lanes, record, rules] =
      parts_->base;
  // A lease may end after an engine that failed.
  if (memory.built()) {
    memory.manager().SetLeased(memory.arena().in_use() -
                               memory.arena().SizeOf(lease));
  }
  record.EndLease(*used_on.front(), lease);
  std::vector<Event> ends;
  for (Lane* lane : used_on) ends.push_back(lane->Record());
  Event free_after = AllOf(ends);
  if (memory.built()) {
    free_after = memory.pools().Poison(memory.arena().DataOf(lease),
                                       memory.arena().SizeOf(lease),
                                       std::move(free_after));
  }
  memory.arena().Return(lease, std::move(free_after));
}

Result<EvaluateScope> ZeroEngine::Evaluate() {
  auto& [model, health, progress, scalars, memory, lanes, record, rules] =
      parts_->base;
  CASTOR_RETURN_IF_ERROR(rules.RequireSealed());
  if (model.grads_in_place()) {
    for (size_t p = 0; p < model.params.size(); ++p) {
      CASTOR_RETURN_IF_ERROR(parts_->reducer.overwritten().RequireNot(
          ParamId(static_cast<int32_t>(p))));
    }
  }
  // Its gathers come behind the same reductions on all ranks.
  parts_->late.FollowPlan();
  ++progress.evaluating;
  memory.manager().BeginEvaluation();
  EvaluateScope scope;
  scope.engine_ = this;
  return scope;
}

void ZeroEngine::EndEvaluation() {
  --parts_->base.progress.evaluating;
  parts_->base.memory.manager().EndEvaluation();
}

Status ZeroEngine::UpdateEarly(double lr) {
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->base.rules.RequireSealed()));
  CASTOR_RETURN_IF_ERROR(CheckLearningRate(lr));
  CASTOR_RETURN_IF_ERROR(parts_->optimizer.RequireUpdate());
  return parts_->optimizer.early().Allow(lr);
}

Status ZeroEngine::GuessUpdates(double lr) {
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->base.rules.RequireSealed()));
  CASTOR_RETURN_IF_ERROR(CheckLearningRate(lr));
  parts_->optimizer.guesses().Allow(lr);
  return OkStatus();
}

Status ZeroEngine::FinishGradients() {
  const internal::CallRules& rules = parts_->base.rules;
  CASTOR_RETURN_IF_ERROR(parts_->Told(rules.RequireSealed()));
  CASTOR_RETURN_IF_ERROR(rules.RequireNothingOpen("FinishGradients()"));
  if (parts_->base.progress.micro_batches == 0) {
    return FailedPrecondition(
        "there are no gradients outside a step: finish them before Step()");
  }
  // The norm is taken of finished ones.
  return parts_->norm.clipped() ? OkStatus()
                                : parts_->Told(parts_->late.Flush());
}

Result<double> ZeroEngine::ClipGradients(double max_norm) {
  const auto& [model, health, progress, scalars, memory, lanes, record, rules] =
      parts_->base;
  CASTOR_RETURN_IF_ERROR(parts_->Told(rules.RequireSealed()));
  CASTOR_RETURN_IF_ERROR(rules.RequireNothingOpen("ClipGradients()"));
  if (!model.counts_norm()) {
    return FailedPrecondition(
        "the norm is not counted, so there is nothing to clip by: set "
        "count_norm, clip_norm or loss scaling in the options");
  }
  if (progress.micro_batches == 0 || !progress.last_micro_batch) {
    return FailedPrecondition(
        "gradients are clipped after the last micro-batch: begin it as the "
        "last one, and hand back its gradients first");
  }
  if (!(max_norm > 0)) {
    return InvalidArgument(fmt::format(
        "a norm of at most {} has no meaning: give more than 0", max_norm));
  }
  auto& clipped = parts_->norm.clipped();
  if (!clipped) {
    CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->late.Flush()));
    CASTOR_ASSIGN_OR_RETURN(const internal::NormOfStep norm,
                            parts_->Told(parts_->agreement.AgreeOnNorm()));
    clipped = {norm, 0};
  }
  clipped->max_norm = max_norm;
  return std::sqrt(clipped->norm.squares) * parts_->optimizer.AveragingFactor();
}

Result<StepResult> ZeroEngine::Step(double lr) {
  const internal::CallRules& rules = parts_->base.rules;
  CASTOR_RETURN_IF_ERROR(parts_->Told(rules.RequireSealed()));
  if (parts_->base.progress.micro_batches == 0) {
    return FailedPrecondition(
        "there is nothing to step: call BeginMicroBatch() and hand back "
        "gradients first");
  }
  CASTOR_RETURN_IF_ERROR(rules.RequireNothingOpen("Step()"));
  CASTOR_RETURN_IF_ERROR(CheckLearningRate(lr));
  CASTOR_RETURN_IF_ERROR(parts_->optimizer.RequireUpdate());
  CASTOR_RETURN_IF_ERROR(parts_->optimizer.early().CheckRate(lr));
  return parts_->Told(MakeStep(lr));
}

Result<StepResult> ZeroEngine::MakeStep(double lr) {
  auto& [model, health, progress, scalars, memory, lanes, record, rules] =
      parts_->base;
  internal::OptimizerPass& optimizer = parts_->optimizer;
  CASTOR_RETURN_IF_ERROR(parts_->late.Flush());
  progress.ending_moment = memory.moment();
  CASTOR_RETURN_IF_ERROR(memory.manager().EndStep());
  for (internal::ParamProgress& param : progress.params) {
    param.had_grad = param.used;
  }
  CASTOR_ASSIGN_OR_RETURN(const internal::NormOfStep norm,
                          parts_->agreement.Agree(lr));

  // The average, the unscaling and the clip are one factor, one multiply.
  const double average = optimizer.AveragingFactor();
  StepResult result;
  internal::StepUpdates updates;
  result.loss_scale = scalars.scaler.scale();
  if (model.counts_norm()) {
    result.grad_norm = std::sqrt(norm.squares) * average;
    result.applied = !norm.overflowed;
  }
  const auto& clipped = parts_->norm.clipped();
  const double max_norm = clipped ? clipped->max_norm : model.options.clip_norm;
  if (max_norm > 0) {
    result.clip_factor = std::min(1.0, max_norm / (result.grad_norm + 1e-6));
  }
  if (result.applied) {
    const auto factor = static_cast<float>(result.clip_factor * average);
    CASTOR_RETURN_IF_ERROR(
        optimizer.UpdateAll(parts_->reducer.valid(), factor, lr, &updates));
    result.written = updates.written;
  } else {
    CASTOR_ASSIGN_OR_RETURN(result.not_finite, parts_->values.FirstNotFinite());
  }
  if (!scalars.scaler.Update(!result.applied)) {
    model.options.log->WarnOnce(
        "loss scale",
        fmt::format("gradients overflow at a loss scale of {}, the least that "
                    "the options allow: steps are skipped until they do not",
                    scalars.scaler.scale()));
  }
  if (!result.applied && model.grads_in_place()) {
    parts_->reducer.RestoreLostHomes();
  }
  parts_->reducer.EndStep();
  parts_->norm.EndStep();
  optimizer.EndStep();
  progress.micro_batches = 0;
  progress.last_micro_batch = false;
  record.EndStep();
  CASTOR_RETURN_IF_ERROR(parts_->checkpoints.AdvanceSave());
  progress.ending_moment = -1;
  result.step = ++progress.steps;
  if (record.describes_trace()) record.DescribeTrace(RecordedTrace());
  memory.BeginStep(progress.number());
  CASTOR_RETURN_IF_ERROR(health.status());
  CASTOR_RETURN_IF_ERROR(updates.skipped);
  return result;
}

Status ZeroEngine::Abandon() {
  auto& [model, health, progress, scalars, memory, lanes, record, rules] =
      parts_->base;
  CASTOR_RETURN_IF_ERROR(parts_->Told(rules.RequireSealed()));
  CASTOR_RETURN_IF_ERROR(rules.RequireNothingOpen("Abandon()"));
  for (size_t c = 0; c < model.chunks(); ++c) {
    CASTOR_RETURN_IF_ERROR(parts_->optimizer.early().RequireNotUpdated(
        ChunkId(static_cast<int32_t>(c))));
  }
  parts_->optimizer.Abandon();
  CASTOR_RETURN_IF_ERROR(parts_->Told(parts_->late.Abandon()));
  CASTOR_RETURN_IF_ERROR(parts_->Told(memory.device_lane().Drain()));
  CASTOR_RETURN_IF_ERROR(parts_->Told(lanes.host->Drain()));
  parts_->norm.Reset();
  parts_->norm.EndStep();
  progress.micro_batches = 0;
  progress.last_micro_batch = false;
  memory.manager().AbandonStep();
  return OkStatus();
}

}  // namespace castor
