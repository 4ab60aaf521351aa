// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Which chunk is reduced when, where ranks may lack gradients that others have.
//
// Ranks that keep whole parameters take turns
// (placement/trace/reduction_turns.h).
//
// Where parameters are sharded, gathers are collectives too, and which slots
// are free decides what is gathered when. So a rank may not hold what others
// have given back. All ranks make the accesses of the planned step: a rank that
// lacks a gradient opens it, as zeros, and reduces it, where the plan has that,
// at the latest before the next use of parameters. No slot is held for longer
// than planned. Where all ranks open a gradient later than planned, its chunk
// is reduced again, and adds to zeros. What is done where there is no plan:
// zero_engine_waiting.cc.

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "collectives/engine/zero_engine_impl.h"

namespace castor {

void ZeroEngine::Impl::SetUpTurns(const SealOptions& declared) {
  if (comm_->world() == 1) return;
  if (!sharding_.replicated(StateKind::kParam)) {
    SetUpWaiting(declared);
    // What is written over a copy needs the copy, on all ranks.
    follows_plan_ = !grads_in_place() || !waits_.empty();
    return;
  }
  std::vector<bool> had;
  if (!declared.held.empty()) had.assign(params_.size(), false);
  for (const HeldTogether& held : declared.held) {
    for (const ParamId param : held.grads) had[param.index()] = true;
  }
  turns_ = ReductionTurns(*layout_, had);
}

void ZeroEngine::Impl::Complete(ChunkId chunk) {
  if (!turns_.any()) {
    if (WaitsForFlush()) {
      grads_[chunk.index()].complete_at = Position();
      return;
    }
    const Access close{AccessKind::kGradClose, chunk};
    FollowPlan(close, false);
    // Other ranks may have what this one lacks of it: all close it as planned.
    if (!waits_.empty() && !PlannedNext(close)) return;
    return ReduceChunk(chunk);
  }
  turns_.Complete(chunk);
  ReduceInTurn();
}

void ZeroEngine::Impl::ReduceInTurn() {
  while (const std::optional<ChunkId> chunk = turns_.TakeNext()) {
    ReduceChunk(*chunk);
  }
}

bool ZeroEngine::Impl::MakeRoom() {
  if (!turns_.any() || evaluating_ > 0 || !turns_.LetPass()) return false;
  ReduceInTurn();
  return true;
}

Status ZeroEngine::Impl::FlushTurns() {
  for (const ChunkId chunk : turns_.order()) {
    ChunkGrad& grad = grads_[chunk.index()];
    if (grad.state != GradState::kOpen || turns_.complete(chunk)) continue;
    WaitForWriters(grad);
    turns_.Complete(chunk);
  }
  ReduceInTurn();
  while (const std::optional<ChunkId> chunk = turns_.Awaited()) {
    if (Status opened = OpenZeros(*chunk); !opened.ok()) {
      if (!MakeRoom()) return WithEnough(opened);
      continue;
    }
    // This rank had none of it: it does not say when it is complete.
    ReduceChunk(turns_.TakeAwaited());
    ReduceInTurn();
  }
  EndMicroBatch();
  return OkStatus();
}

void ZeroEngine::Impl::FollowPlan(std::optional<Access> until, bool flush) {
  if (!follows_plan_ || micro_batches_ == 0 || evaluating_ > 0) return;
  const std::span<const Access> left = manager_->PlannedBeforeUse();
  if (until && std::find(left.begin(), left.end(), *until) == left.end()) {
    return;
  }
  for (auto next = left.begin(); next != left.end(); ++next) {
    const Access& access = *next;
    if (access == until) return;
    // What is open beyond the flush belongs to the next micro-batch.
    if (flush && access.kind == AccessKind::kGradOpen &&
        std::find(next, left.end(),
                  Access{AccessKind::kGradClose, access.chunk}) == left.end()) {
      return;
    }
    // In place, the use that comes with the access to the gradient; and ends of
    // uses, where these are not the trainer's.
    if (access.kind == AccessKind::kUse || access.kind == AccessKind::kUseEnd) {
      manager_->FollowEnds();
      continue;
    }
    ChunkGrad& grad = grads_[access.chunk.index()];
    if (access.kind == AccessKind::kGradOpen) {
      // Without a slot the next access departs from the plan, and says why.
      if (grad.state != GradState::kNone || !OpenZeros(access.chunk).ok()) {
        return;
      }
      continue;
    }
    const std::vector<ParamId>& params = layout_->chunk(access.chunk).params;
    const bool written =
        std::any_of(params.begin(), params.end(), [&](ParamId id) {
          return params_[id.index()].state == ParamState::kOpen;
        });
    if (grad.state != GradState::kOpen || !Reduces() || (written && !flush)) {
      return;
    }
    if (written) WaitForWriters(grad);
    ReduceChunk(access.chunk, !flush);
  }
}

Status ZeroEngine::Impl::OpenZeros(ChunkId chunk) {
  ChunkGrad& grad = grads_[chunk.index()];
  CASTOR_ASSIGN_OR_RETURN(grad.slot, OpenSlot(chunk));
  CASTOR_ASSIGN_OR_RETURN(grad.state, NextState(grad.state, GradEvent::kOpen));
  grad.micro_batch = 0;
  grad.lanes.clear();
  // In place of parameters, ReduceChunk clears what nobody opened.
  if (grads_in_place()) return OkStatus();
  device_lane_->Wait(grad.slot.free_after);
  pools_->device().Zero(*device_lane_, grad.slot.data,
                        BytesOf(layout_->chunk(chunk).size, GradDType(chunk)));
  grad.opened = device_lane_->Record();
  grad.ready = {grad.opened};
  return OkStatus();
}

}  // namespace castor
