// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "collectives/engine/zero_engine_impl.h"

namespace castor {

Status ZeroEngine::Impl::BeginMicroBatch(bool last) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  if (evaluating_ > 0) {
    return FailedPrecondition(
        "a micro-batch cannot begin inside an evaluation");
  }
  CASTOR_RETURN_IF_ERROR(RequireOneMicroBatch(last));
  if (micro_batches_ > 0 && last_micro_batch_) {
    if (early_lr_ || clipped_ || grads_in_place()) {
      return FailedPrecondition(
          "the micro-batch before this one was said to be the last, and its "
          "gradients are used already: call Step()");
    }
    // It was not: what is in the norm changes.
    recounts_ = CountsNorm();
  }
  if (micro_batches_ > 0 && Reduces()) {
    CASTOR_RETURN_IF_ERROR(FlushGrads());
  } else {
    EndMicroBatch();
  }
  turns_.BeginMicroBatch();
  ending_moment_ = -1;  // of a step that failed
  if (micro_batches_++ == 0) {
    step_begin_ns_ = options_.clock->NowNs();
    manager_->EnterStep();
    reduced_in_step_ = 0;
    flushed_at_ = 0;
  }
  last_micro_batch_ = last;
  return OkStatus();
}

Result<void*> ZeroEngine::Impl::Grad(ParamId param, Lane& lane) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  const ParamPlace& place = layout_->place(param);
  const ChunkId chunk = place.chunk;
  if (micro_batches_ == 0 || evaluating_ > 0) {
    return FailedPrecondition(fmt::format(
        "gradient of {} outside a micro-batch: call BeginMicroBatch() first",
        Name(param)));
  }
  if (!params_[param.index()].spec.trainable) {
    return FailedPrecondition(
        fmt::format("parameter {} is frozen: it has no gradient", Name(param)));
  }
  CASTOR_RETURN_IF_ERROR(RequireNotClipped(param));
  CASTOR_ASSIGN_OR_RETURN(const ParamState opened,
                          NextParamState(param, ParamEvent::kOpen));
  if (!chunk.valid()) {
    params_[param.index()].state = opened;
    return static_cast<void*>(nullptr);
  }
  if (grads_in_place() && params_[param.index()].held > 0) {
    return FailedPrecondition(
        fmt::format("parameter {} is on lease, and its gradient is written "
                    "over it: release it before Grad()",
                    Name(param)));
  }
  ChunkGrad& grad = grads_[chunk.index()];
  if (grad.state == GradState::kNone) {
    FollowPlan(Access{AccessKind::kGradOpen, chunk}, false);
    Result<Slot> slot = OpenSlot(chunk);
    while (!slot.ok() && MakeRoom()) slot = OpenSlot(chunk);
    if (!slot.ok()) return WithEnough(slot.status());
    grad.slot = *std::move(slot);
    CASTOR_ASSIGN_OR_RETURN(grad.state,
                            NextState(grad.state, GradEvent::kOpen));
    grad.micro_batch = 0;
    if (!grads_in_place()) {
      manager_->WaitOn(lane, grad.slot.free_after, chunk, RunCause::kGradient);
      pools_->device().Zero(
          lane, grad.slot.data,
          BytesOf(layout_->chunk(chunk).size, GradDType(chunk)));
    }
    grad.opened = lane.Record();
    grad.lanes = {&lane};
  } else if (grad.micro_batch != micro_batches_) {
    // What earlier micro-batches add comes first, on whichever lane.
    for (Lane* other : grad.lanes) grad.ready.push_back(other->Record());
    grad.opened = AllOf(grad.ready);
    grad.ready = {grad.opened};
    lane.Wait(grad.opened);
    grad.lanes = {&lane};
  } else if (std::find(grad.lanes.begin(), grad.lanes.end(), &lane) ==
             grad.lanes.end()) {
    lane.Wait(grad.opened);
    grad.lanes.push_back(&lane);
  }
  if (grad.micro_batch != micro_batches_) {
    grad.micro_batch = micro_batches_;
    grad.params_left = 0;
    for (ParamId other : layout_->chunk(chunk).params) {
      grad.params_left += params_[other.index()].state != ParamState::kReady;
    }
  }
  if (grads_in_place() && !params_[param.index()].overwritten) {
    BeginOverwriting(param, lane);
  }
  params_[param.index()].state = opened;
  params_[param.index()].used = true;
  CASTOR_RETURN_IF_ERROR(lane.status());
  return static_cast<void*>(grad.slot.data +
                            BytesOf(place.offset, GradDType(chunk)).count());
}

Status ZeroEngine::Impl::GradReady(ParamId param, Lane& lane) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  if (evaluating_ > 0) {
    return FailedPrecondition(fmt::format(
        "the gradient of {} cannot be handed back inside an evaluation",
        Name(param)));
  }
  CASTOR_ASSIGN_OR_RETURN(params_[param.index()].state,
                          NextParamState(param, ParamEvent::kHandBack));
  const ChunkId chunk = layout_->place(param).chunk;
  if (!chunk.valid()) return OkStatus();
  ChunkGrad& grad = grads_[chunk.index()];
  CASTOR_CHECK(grad.state == GradState::kOpen);
  grad.ready.push_back(lane.Record());
  if (--grad.params_left == 0 && Reduces()) Complete(chunk);
  return lane.status();
}

Result<ParamState> ZeroEngine::Impl::NextParamState(ParamId param,
                                                    ParamEvent event) const {
  Result<ParamState> next = NextState(params_[param.index()].state, event);
  if (next.ok()) return next;
  return next.status().WithContext(fmt::format("parameter {}", Name(param)));
}

// fp32 and bf16 reach further than any sum. Where both are trained with fp16,
// all are divided, so that one norm and one factor serve them.
int ZeroEngine::Impl::HeadroomOfSums(const SealOptions& declared) const {
  bool half = false;
  for (size_t c = 0; c < layout_->chunks().size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    half |= Trainable(chunk) && GradDType(chunk) == DType::kF16;
  }
  if (!half) return 0;
  // What the trainer adds up in one place is the trainer's own sum.
  const int64_t sums = options_.accumulation == AccumulationOrder::kEach
                           ? declared.micro_batches
                           : 1;
  return static_cast<int>(
      std::bit_width(static_cast<uint64_t>(comm_->world() * sums - 1)));
}

void ZeroEngine::Impl::EndMicroBatch() {
  for (Param& param : params_) {
    param.state = *NextState(param.state, ParamEvent::kMicroBatchEnd);
  }
}

Status ZeroEngine::Impl::FlushGrads() {
  if (turns_.any()) return FlushTurns();
  FollowPlan(std::nullopt, true);
  if (!waits_.empty()) CASTOR_RETURN_IF_ERROR(FlushWaiting());
  for (size_t c = 0; c < grads_.size(); ++c) {
    if (grads_[c].state != GradState::kOpen) continue;
    // What was opened and not handed back may still be written to.
    WaitForWriters(grads_[c]);
    ReduceChunk(ChunkId(static_cast<int32_t>(c)));
  }
  flushed_at_ = manager_->trace().size();
  events_ = 0;
  EndMicroBatch();
  return OkStatus();
}

void ZeroEngine::Impl::ReduceChunk(ChunkId chunk, bool early) {
  ChunkGrad& grad = grads_[chunk.index()];
  grad.state = *NextState(grad.state, GradEvent::kAllReady);
  if (grads_in_place()) grad.ready.push_back(ClearUnopened(chunk));
  Event ready = AllOf(grad.ready);
  grad.ready.clear();
  if (headroom_ > 0) {
    device_lane_->Wait(ready);
    pools_->device().Scale(*device_lane_, grad.slot.data, GradDType(chunk),
                           layout_->chunk(chunk).size,
                           std::ldexp(1.0f, -headroom_));
    ready = device_lane_->Record();
  }
  const bool first = !grad.valid;
  const bool home_on_device =
      store_->home(chunk, StateKind::kGrad) == Tier::kDevice;
  std::byte* reduced_at = grad.slot.data;
  Event reduced = ready;
  if (comm_->world() > 1) {
    // Every rank sums up one slice over all ranks in their order, so that no
    // sharding can change a bit; what it keeps more of comes from the others.
    const ShardRange kept = sharding_.kept(StateKind::kGrad, *layout_, chunk);
    const ShardRange slice = sharding_.counted(*layout_, chunk);
    const Elements shard = slice.end - slice.begin;
    const DType dtype = GradDType(chunk);
    // The first sum of a step is received where it will stay, if that is on the
    // device; later ones are added to it.
    reduced_at += BytesOf(kept.begin, dtype).count();
    if (first && home_on_device) {
      reduced_at = store_->device_data(chunk, StateKind::kGrad);
      reduce_lane_->Wait(store_->WriteReady(chunk, StateKind::kGrad));
    }
    std::byte* const target =
        reduced_at + BytesOf(slice.begin - kept.begin, dtype).count();
    const int joined = sharding_.joined_ranks();
    reduce_lane_->Wait(ready);
    auto event = std::make_shared<RunEvent>(
        EventFor(RunEventKind::kReduceScatter, chunk, RunCause::kGradient));
    event->state = StateKind::kGrad;
    event->bytes =
        BytesOf(shard, dtype).count() * (comm_->world() - 1 + joined - 1);
    RecordSpan(*reduce_lane_, event, true);
    // Where chunks take turns, that is what ranks have in common.
    CollectiveTag tag{chunk,
                      turns_.any() ? reduced_in_step_ : manager_->moment(),
                      "grad", sharding_.reduce_scope()};
    comm_->ReduceScatter(*reduce_lane_, grad.slot.data, target, shard, dtype,
                         tag);
    if (joined > 1) {
      tag.scope = sharding_.join_scope();
      comm_->AllGather(*reduce_lane_, target, reduced_at, shard, dtype, tag);
    }
    RecordSpan(*reduce_lane_, event, false);
    reduced = reduce_lane_->Record();
    ++reduce_scatters_;
    ++reduced_in_step_;
  }
  // What other ranks lack may come again where gradients wait for the flush.
  const bool updates =
      early_lr_ && last_micro_batch_ && !early && waits_.empty();
  // One that is used up at once need not go to the drive and come back.
  grad.used_up = updates && first && !grads_in_place() &&
                 store_->home(chunk, StateKind::kGrad) == Tier::kNvme &&
                 MayUpdateNow(chunk);
  Event free_after = grad.used_up ? UpdateFrom(chunk, reduced_at, reduced)
                                  : Deposit(chunk, reduced_at, reduced);
  grad.valid = true;
  if (CountsNorm() && last_micro_batch_) {
    recounts_ = recounts_ || grad.counted;
    grad.counted = true;
  }
  manager_->CloseGrad(chunk, grad.slot, std::move(free_after),
                      !WaitsForFlush());
  grad.state = *NextState(grad.state, GradEvent::kReduced);
  grad.slot = Slot();
  grad.opened_at = grad.complete_at = 0;
  if (updates && !grad.used_up && MayUpdateNow(chunk)) UpdateNow(chunk);
}

Status ZeroEngine::Impl::Abandon() {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen("Abandon()"));
  for (size_t c = 0; c < grads_.size(); ++c) {
    CASTOR_RETURN_IF_ERROR(RequireNotUpdated(ChunkId(static_cast<int32_t>(c))));
  }
  // Ranks that lack gradients may have reduced fewer chunks: all make the
  // reductions that any has made.
  early_lr_.reset();
  if (micro_batches_ > 0 && Reduces()) {
    if (turns_.any()) CASTOR_RETURN_IF_ERROR(FlushTurns());
    FollowPlan(std::nullopt, true);
  }
  for (size_t c = 0; c < grads_.size(); ++c) {
    ChunkGrad& grad = grads_[c];
    const ChunkId chunk(static_cast<int32_t>(c));
    bool lost = grad.valid && LosesHome(chunk);
    if (grad.state == GradState::kOpen) {
      for (Lane* lane : grad.lanes) grad.ready.push_back(lane->Record());
      grad.state = *NextState(grad.state, GradEvent::kAbandon);
      manager_->CloseGrad(chunk, grad.slot, AllOf(grad.ready),
                          !WaitsForFlush());
      lost |= LosesHome(chunk);
    }
    grad = ChunkGrad();
    if (lost) RestoreHome(chunk);
  }
  CASTOR_RETURN_IF_ERROR(device_lane_->Drain());
  CASTOR_RETURN_IF_ERROR(host_lane_->Drain());
  ResetSquares();
  for (Param& param : params_) param.used = param.overwritten = false;
  EndMicroBatch();
  micro_batches_ = 0;
  last_micro_batch_ = false;
  clipped_.reset();
  recounts_ = false;
  turns_.BeginMicroBatch();
  manager_->AbandonStep();
  return OkStatus();
}

}  // namespace castor
