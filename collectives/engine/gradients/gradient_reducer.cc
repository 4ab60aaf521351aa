// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/gradients/gradient_reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace castor::internal {

void GradientReducer::Begin() { grads_.assign(model_.chunks(), ChunkGrad()); }

std::vector<ChunkId> GradientReducer::open() const {
  std::vector<ChunkId> chunks;
  for (size_t c = 0; c < grads_.size(); ++c) {
    if (grads_[c].state != GradState::kOpen) continue;
    chunks.emplace_back(static_cast<int32_t>(c));
  }
  return chunks;
}

std::vector<ChunkId> GradientReducer::valid() const {
  std::vector<ChunkId> chunks;
  for (size_t c = 0; c < grads_.size(); ++c) {
    if (grads_[c].valid) chunks.emplace_back(static_cast<int32_t>(c));
  }
  return chunks;
}

Status GradientReducer::CheckOpens(ParamId param) const {
  if (progress_.micro_batches == 0 || progress_.evaluating > 0) {
    return FailedPrecondition(fmt::format(
        "gradient of {} outside a micro-batch: call BeginMicroBatch() first",
        model_.Name(param)));
  }
  if (!model_.param(param).spec.trainable) {
    return FailedPrecondition(fmt::format(
        "parameter {} is frozen: it has no gradient", model_.Name(param)));
  }
  CASTOR_RETURN_IF_ERROR(norm_.RequireNotClipped(param));
  CASTOR_RETURN_IF_ERROR(Next(param, ParamEvent::kOpen).status());
  if (model_.grads_in_place() && progress_.params[param.index()].held > 0 &&
      model_.chunk_of(param).valid()) {
    return FailedPrecondition(
        fmt::format("parameter {} is on lease, and its gradient is written "
                    "over it: release it before Grad()",
                    model_.Name(param)));
  }
  return OkStatus();
}

Bytes GradientReducer::SlotBytes(ChunkId chunk) const {
  return BytesOf(model_.layout->chunk(chunk).size, model_.GradDType(chunk));
}

Status GradientReducer::TakeSlot(ChunkId chunk, bool traced) {
  ChunkGrad& grad = grads_[chunk.index()];
  CASTOR_ASSIGN_OR_RETURN(grad.slot, memory_.manager().OpenGrad(chunk, traced));
  CASTOR_ASSIGN_OR_RETURN(grad.state, NextState(grad.state, GradEvent::kOpen));
  grad.micro_batch = 0;
  grad.lanes.clear();
  return OkStatus();
}

Result<std::byte*> GradientReducer::Open(ParamId param, Lane& lane) {
  ParamProgress& own = progress_.params[param.index()];
  const ChunkId chunk = model_.chunk_of(param);
  CASTOR_ASSIGN_OR_RETURN(own.state, Next(param, ParamEvent::kOpen));
  if (!chunk.valid()) return static_cast<std::byte*>(nullptr);
  OpenFor(chunk, lane);
  if (model_.grads_in_place()) {
    overwritten_.Begin(param, grads_[chunk.index()].slot.data, lane);
  }
  own.used = true;
  CASTOR_RETURN_IF_ERROR(lane.status());
  return grads_[chunk.index()].slot.data +
         BytesOf(model_.layout->place(param).offset, model_.GradDType(chunk))
             .count();
}

void GradientReducer::OpenFor(ChunkId chunk, Lane& lane) {
  ChunkGrad& grad = grads_[chunk.index()];
  if (grad.lanes.empty() && grad.ready.empty()) {
    // In place of parameters, each is cleared when it is opened.
    if (!model_.grads_in_place()) {
      memory_.manager().WaitOn(lane, grad.slot.free_after, chunk,
                               RunCause::kGradient);
      memory_.device().Zero(lane, grad.slot.data, SlotBytes(chunk));
    }
    grad.opened = lane.Record();
    grad.lanes = {&lane};
  } else if (grad.micro_batch != progress_.micro_batches) {
    // What earlier micro-batches add comes first, on whichever lane.
    WaitForWriters(chunk);
    grad.opened = AllOf(grad.ready);
    grad.ready = {grad.opened};
    lane.Wait(grad.opened);
    grad.lanes = {&lane};
  } else if (std::find(grad.lanes.begin(), grad.lanes.end(), &lane) ==
             grad.lanes.end()) {
    lane.Wait(grad.opened);
    grad.lanes.push_back(&lane);
  }
  if (grad.micro_batch == progress_.micro_batches) return;
  grad.micro_batch = progress_.micro_batches;
  grad.params_left = 0;
  for (ParamId other : model_.layout->chunk(chunk).params) {
    grad.params_left +=
        progress_.params[other.index()].state != ParamState::kReady;
  }
}

void GradientReducer::OpenZeros(ChunkId chunk) {
  // In place of parameters, Reduce clears what nobody opened.
  if (model_.grads_in_place()) return;
  ChunkGrad& grad = grads_[chunk.index()];
  memory_.device_lane().Wait(grad.slot.free_after);
  memory_.device().Zero(memory_.device_lane(), grad.slot.data,
                        SlotBytes(chunk));
  grad.opened = memory_.device_lane().Record();
  grad.ready = {grad.opened};
}

Result<bool> GradientReducer::HandBack(ParamId param, Lane& lane) {
  if (progress_.evaluating > 0) {
    return FailedPrecondition(fmt::format(
        "the gradient of {} cannot be handed back inside an evaluation",
        model_.Name(param)));
  }
  CASTOR_ASSIGN_OR_RETURN(progress_.params[param.index()].state,
                          Next(param, ParamEvent::kHandBack));
  const ChunkId chunk = model_.chunk_of(param);
  if (!chunk.valid()) return false;
  ChunkGrad& grad = grads_[chunk.index()];
  CASTOR_CHECK(grad.state == GradState::kOpen);
  grad.ready.push_back(lane.Record());
  return --grad.params_left == 0 && reduces();
}

Result<ParamState> GradientReducer::Next(ParamId param,
                                         ParamEvent event) const {
  Result<ParamState> next =
      NextState(progress_.params[param.index()].state, event);
  if (next.ok()) return next;
  return next.status().WithContext(
      fmt::format("parameter {}", model_.Name(param)));
}

void GradientReducer::WaitForWriters(ChunkId chunk) {
  ChunkGrad& grad = grads_[chunk.index()];
  for (Lane* lane : grad.lanes) grad.ready.push_back(lane->Record());
}

bool GradientReducer::being_written(ChunkId chunk) const {
  const std::vector<ParamId>& params = model_.layout->chunk(chunk).params;
  return std::any_of(params.begin(), params.end(), [&](ParamId id) {
    return progress_.params[id.index()].state == ParamState::kOpen;
  });
}

void GradientReducer::EndMicroBatch() {
  for (ParamProgress& param : progress_.params) {
    param.state = *NextState(param.state, ParamEvent::kMicroBatchEnd);
  }
}

void GradientReducer::Reduce(ChunkId chunk, Reduction how) {
  ChunkGrad& grad = grads_[chunk.index()];
  grad.state = *NextState(grad.state, GradEvent::kAllReady);
  if (model_.grads_in_place()) {
    grad.ready.push_back(overwritten_.ClearUnopened(chunk, grad.slot.data));
  }
  Event ready = AllOf(grad.ready);
  grad.ready.clear();
  if (model_.headroom > 0) {
    memory_.device_lane().Wait(ready);
    memory_.device().Scale(
        memory_.device_lane(), grad.slot.data, model_.GradDType(chunk),
        model_.layout->chunk(chunk).size, std::ldexp(1.0f, -model_.headroom));
    ready = memory_.device_lane().Record();
  }
  const PassingGrad sum = SumOverRanks(chunk, ready);
  const bool updates =
      how.updates && optimizer_.early().allowed() && progress_.last_micro_batch;
  // One that is used up at once need not go to the drive and come back.
  grad.used_up = updates && !grad.valid && !model_.grads_in_place() &&
                 memory_.store().home(chunk, StateKind::kGrad) == Tier::kNvme &&
                 optimizer_.MayUpdateNow(chunk);
  const bool first = !std::exchange(grad.valid, true);
  Event free_after = grad.used_up ? optimizer_.UpdateNow(chunk, &sum)
                                  : Deposit(chunk, sum, first);
  norm_.Note(chunk);
  if (how.updates) {
    const Event read = optimizer_.GuessNow(chunk, first ? &sum : nullptr);
    if (!read.done()) {
      const Event both[] = {free_after, read};
      free_after = AllOf(both);
    }
  }
  memory_.manager().CloseGrad(chunk, grad.slot, std::move(free_after),
                              how.traced);
  grad.state = *NextState(grad.state, GradEvent::kReduced);
  grad.slot = Slot();
  if (updates && !grad.used_up && optimizer_.MayUpdateNow(chunk)) {
    optimizer_.UpdateNow(chunk);
  }
}

PassingGrad GradientReducer::SumOverRanks(ChunkId chunk, const Event& ready) {
  const ChunkGrad& grad = grads_[chunk.index()];
  if (model_.comm->world() == 1) return {grad.slot.data, ready};
  // Every rank sums up one slice over all ranks in their order, so that no
  // sharding can change a bit; what it keeps more of comes from the others.
  const ShardRange kept = model_.kept(StateKind::kGrad, chunk);
  const ShardRange slice = model_.counted(chunk);
  const Elements shard = slice.end - slice.begin;
  const DType dtype = model_.GradDType(chunk);
  // The first sum of a step is received where it will stay, if that is on the
  // device; later ones are added to it.
  std::byte* sum = grad.slot.data + BytesOf(kept.begin, dtype).count();
  if (!grad.valid &&
      memory_.store().home(chunk, StateKind::kGrad) == Tier::kDevice) {
    sum = memory_.store().device_data(chunk, StateKind::kGrad);
    lanes_.reduce->Wait(memory_.store().WriteReady(chunk, StateKind::kGrad));
  }
  std::byte* const target =
      sum + BytesOf(slice.begin - kept.begin, dtype).count();
  const int joined = model_.sharding.joined_ranks();
  lanes_.reduce->Wait(ready);
  auto event = std::make_shared<RunEvent>(record_.EventFor(
      RunEventKind::kReduceScatter, chunk, RunCause::kGradient));
  event->state = StateKind::kGrad;
  event->bytes =
      BytesOf(shard, dtype).count() * (model_.comm->world() - 1 + joined - 1);
  record_.Begin(*lanes_.reduce, event);
  // Where chunks take turns, how many were is what ranks have in common.
  CollectiveTag tag{chunk,
                    model_.takes_turns() ? reduced_in_step_ : memory_.moment(),
                    "grad", model_.sharding.reduce_scope()};
  model_.comm->ReduceScatter(*lanes_.reduce, grad.slot.data, target, shard,
                             dtype, tag);
  if (joined > 1) {
    tag.scope = model_.sharding.join_scope();
    model_.comm->AllGather(*lanes_.reduce, target, sum, shard, dtype, tag);
  }
  record_.End(*lanes_.reduce, event);
  ++reduce_scatters_;
  ++reduced_in_step_;
  return {sum, lanes_.reduce->Record()};
}

void GradientReducer::Abandon(ChunkId chunk, bool traced) {
  ChunkGrad& grad = grads_[chunk.index()];
  const bool open = grad.state == GradState::kOpen;
  const bool lost = (grad.valid || open) && memory_.loses_home(chunk);
  if (open) {
    WaitForWriters(chunk);
    grad.state = *NextState(grad.state, GradEvent::kAbandon);
    memory_.manager().CloseGrad(chunk, grad.slot, AllOf(grad.ready), traced);
  }
  grad = ChunkGrad();
  if (lost) optimizer_.RestoreHome(chunk);
}

void GradientReducer::ForgetStep() {
  EndMicroBatch();
  for (ParamProgress& param : progress_.params) {
    param.used = param.overwritten = false;
    param.borrowed = nullptr;
  }
}

void GradientReducer::RestoreLostHomes() {
  for (const ChunkId chunk : valid()) {
    if (memory_.loses_home(chunk)) optimizer_.RestoreHome(chunk);
  }
}

void GradientReducer::EndStep() {
  grads_.assign(grads_.size(), ChunkGrad());
  for (ParamProgress& param : progress_.params) {
    param.used = false;
    param.borrowed = nullptr;
  }
}

void GradientReducer::Close() {
  for (const ChunkId chunk : open()) {
    memory_.manager().CloseGrad(chunk, grads_[chunk.index()].slot, Event());
  }
}

}  // namespace castor::internal
