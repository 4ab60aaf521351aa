// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Where parameters are sharded, gathers are collectives too, and which slots
// are free decides what is gathered when. So a rank may not hold what others
// have given back. All ranks make the accesses of the planned step: a rank that
// lacks a gradient opens it, as zeros, and reduces it, where the plan has that,
// at the latest before the next use of parameters. No slot is held for longer
// than planned. Where all ranks open a gradient later than planned, its chunk
// is reduced again, and adds to zeros.

#include "collectives/engine/gradients/late_gradients.h"

#include <algorithm>
#include <span>
#include <utility>

namespace castor::internal {

void LateGradients::Begin(const SealOptions& declared) {
  positions_.assign(model_.chunks(), Positions());
  rules_ = Rules();
  if (model_.comm->world() == 1) return;
  if (!model_.takes_turns()) {
    SetUpWaiting(declared);
    // What is written over a copy needs the copy, on all ranks.
    rules_.follows_plan = !model_.grads_in_place() || !rules_.to_flush.empty();
    return;
  }
  std::vector<bool> had;
  if (!declared.held.empty()) had.assign(model_.params.size(), false);
  for (const HeldTogether& held : declared.held) {
    for (const ParamId param : held.grads) had[param.index()] = true;
  }
  rules_.turns = ReductionTurns(*model_.layout, had);
}

// Where the step is not as planned, all reductions wait for the flush: ranks
// then agree on them. Only where the trainer declares that it may be so.
bool LateGradients::WaitsForFlush() const {
  return !rules_.to_flush.empty() && !memory_.manager().as_planned();
}

void LateGradients::BeginStep() { flushed_at_ = 0; }

Status LateGradients::TakeSlot(ChunkId chunk) {
  Follow(Access{AccessKind::kGradOpen, chunk}, false);
  Status taken = OpenSlot(chunk);
  while (!taken.ok() && MakeRoom()) taken = OpenSlot(chunk);
  return memory_.WithEnough(taken);
}

void LateGradients::Complete(ChunkId chunk) {
  if (rules_.turns.any()) {
    rules_.turns.Complete(chunk);
    return ReduceInTurn();
  }
  if (WaitsForFlush()) {
    positions_[chunk.index()].complete_at = Position();
    return;
  }
  const Access close{AccessKind::kGradClose, chunk};
  Follow(close, false);
  // Other ranks may have gradients of the chunk that this rank lacks: all ranks
  // close the chunk as planned.
  if (rules_.to_flush.empty() || PlannedNext(close)) Reduce(chunk);
}

void LateGradients::Reduce(ChunkId chunk, bool by_plan) {
  // Where gradients wait for the flush, more of the chunk may come from here.
  reducer_.Reduce(chunk, {.traced = !WaitsForFlush(),
                          .updates = !by_plan && rules_.to_flush.empty()});
  positions_[chunk.index()] = Positions();
}

void LateGradients::ReduceInTurn() {
  while (const std::optional<ChunkId> chunk = rules_.turns.TakeNext()) {
    Reduce(*chunk);
  }
}

bool LateGradients::MakeRoom() {
  if (!rules_.turns.any() || progress_.evaluating > 0 ||
      !rules_.turns.LetPass())
    return false;
  ReduceInTurn();
  return true;
}

Status LateGradients::Flush() {
  if (rules_.turns.any()) return FlushTurns();
  Follow(std::nullopt, true);
  if (!rules_.to_flush.empty()) CASTOR_RETURN_IF_ERROR(FlushWaiting());
  for (const ChunkId chunk : reducer_.open()) {
    // What was opened and not handed back may still be written to.
    reducer_.WaitForWriters(chunk);
    Reduce(chunk);
  }
  flushed_at_ = memory_.manager().trace().size();
  events_ = 0;
  reducer_.EndMicroBatch();
  return OkStatus();
}

Status LateGradients::Abandon() {
  // Ranks that lack gradients may have reduced fewer chunks: all make the
  // reductions that any has made.
  if (progress_.micro_batches > 0 && reducer_.reduces()) {
    if (rules_.turns.any()) CASTOR_RETURN_IF_ERROR(FlushTurns());
    Follow(std::nullopt, true);
  }
  for (size_t c = 0; c < model_.chunks(); ++c) {
    reducer_.Abandon(ChunkId(static_cast<int32_t>(c)), !WaitsForFlush());
  }
  reducer_.ForgetStep();
  std::fill(positions_.begin(), positions_.end(), Positions());
  rules_.turns.BeginMicroBatch();
  return OkStatus();
}

Status LateGradients::FlushTurns() {
  for (const ChunkId chunk : rules_.turns.order()) {
    if (reducer_.of(chunk).state != GradState::kOpen ||
        rules_.turns.complete(chunk)) {
      continue;
    }
    reducer_.WaitForWriters(chunk);
    rules_.turns.Complete(chunk);
  }
  ReduceInTurn();
  while (const std::optional<ChunkId> chunk = rules_.turns.Awaited()) {
    if (Status opened = OpenZeros(*chunk); !opened.ok()) {
      if (!MakeRoom()) return memory_.WithEnough(opened);
      continue;
    }
    // This rank had none of it: it does not say when it is complete.
    Reduce(rules_.turns.TakeAwaited());
    ReduceInTurn();
  }
  reducer_.EndMicroBatch();
  return OkStatus();
}

void LateGradients::Follow(std::optional<Access> until, bool flush) {
  if (!rules_.follows_plan || progress_.micro_batches == 0 ||
      progress_.evaluating > 0) {
    return;
  }
  const std::span<const Access> left = memory_.manager().PlannedBeforeUse();
  if (until && std::find(left.begin(), left.end(), *until) == left.end()) {
    return;
  }
  for (auto next = left.begin(); next != left.end(); ++next) {
    if (*next == until) return;
    // What is open beyond the flush belongs to the next micro-batch.
    if (flush && next->kind == AccessKind::kGradOpen &&
        std::find(next, left.end(),
                  Access{AccessKind::kGradClose, next->chunk}) == left.end()) {
      return;
    }
    if (!Make(*next, flush)) return;
  }
}

bool LateGradients::Make(const Access& access, bool flush) {
  const GradState state = reducer_.of(access.chunk).state;
  switch (access.kind) {
    case AccessKind::kUse:
    case AccessKind::kUseEnd:
      // In place, the use that comes with the access to the gradient; and ends
      // of uses, where these are not the trainer's.
      memory_.manager().FollowEnds();
      return true;
    case AccessKind::kGradOpen:
      // Without a slot the next access departs from the plan, and says why.
      return state == GradState::kNone && OpenZeros(access.chunk).ok();
    case AccessKind::kGradClose:
      break;
  }
  const bool written = reducer_.being_written(access.chunk);
  if (state != GradState::kOpen || !reducer_.reduces() || (written && !flush)) {
    return false;
  }
  if (written) reducer_.WaitForWriters(access.chunk);
  Reduce(access.chunk, !flush);
  return true;
}

Status LateGradients::OpenZeros(ChunkId chunk) {
  CASTOR_RETURN_IF_ERROR(OpenSlot(chunk));
  reducer_.OpenZeros(chunk);
  return OkStatus();
}

Status LateGradients::OpenSlot(ChunkId chunk) {
  const bool waits = WaitsForFlush();
  CASTOR_RETURN_IF_ERROR(reducer_.TakeSlot(chunk, !waits));
  if (waits) positions_[chunk.index()].opened_at = Position();
  return OkStatus();
}

}  // namespace castor::internal
