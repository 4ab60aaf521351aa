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
  waiting_.assign(model_.chunks(), Waiting());
  if (model_.comm->world() == 1) return;
  if (!model_.takes_turns()) {
    SetUpWaiting(declared);
    // What is written over a copy needs the copy, on all ranks.
    follows_plan_ = !model_.grads_in_place() || !waits_.empty();
    return;
  }
  std::vector<bool> had;
  if (!declared.held.empty()) had.assign(model_.params.size(), false);
  for (const HeldTogether& held : declared.held) {
    for (const ParamId param : held.grads) had[param.index()] = true;
  }
  turns_ = ReductionTurns(*model_.layout, had);
}

bool LateGradients::WaitsForFlush() const {
  return !waits_.empty() && !memory_.manager().as_planned();
}

void LateGradients::BeginStep() { flushed_at_ = 0; }

Status LateGradients::TakeSlot(ChunkId chunk) {
  Follow(Access{AccessKind::kGradOpen, chunk}, false);
  Status taken = OpenSlot(chunk);
  while (!taken.ok() && MakeRoom()) taken = OpenSlot(chunk);
  return memory_.WithEnough(taken);
}

void LateGradients::Complete(ChunkId chunk) {
  if (turns_.any()) {
    turns_.Complete(chunk);
    return ReduceInTurn();
  }
  if (WaitsForFlush()) {
    waiting_[chunk.index()].complete_at = Position();
    return;
  }
  const Access close{AccessKind::kGradClose, chunk};
  Follow(close, false);
  // Other ranks may have what this one lacks of it: all close it as planned.
  if (waits_.empty() || PlannedNext(close)) Reduce(chunk);
}

void LateGradients::Reduce(ChunkId chunk, bool early) {
  // What other ranks lack may come again where gradients wait for the flush.
  reducer_.Reduce(
      chunk, {.traced = !WaitsForFlush(), .updates = !early && waits_.empty()});
  waiting_[chunk.index()] = Waiting();
}

void LateGradients::ReduceInTurn() {
  while (const std::optional<ChunkId> chunk = turns_.TakeNext()) {
    Reduce(*chunk);
  }
}

bool LateGradients::MakeRoom() {
  if (!turns_.any() || progress_.evaluating > 0 || !turns_.LetPass())
    return false;
  ReduceInTurn();
  return true;
}

Status LateGradients::Flush() {
  if (turns_.any()) return FlushTurns();
  Follow(std::nullopt, true);
  if (!waits_.empty()) CASTOR_RETURN_IF_ERROR(FlushWaiting());
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
    if (turns_.any()) CASTOR_RETURN_IF_ERROR(FlushTurns());
    Follow(std::nullopt, true);
  }
  reducer_.Abandon(!WaitsForFlush());
  std::fill(waiting_.begin(), waiting_.end(), Waiting());
  turns_.BeginMicroBatch();
  return OkStatus();
}

Status LateGradients::FlushTurns() {
  for (const ChunkId chunk : turns_.order()) {
    if (reducer_.of(chunk).state != GradState::kOpen ||
        turns_.complete(chunk)) {
      continue;
    }
    reducer_.WaitForWriters(chunk);
    turns_.Complete(chunk);
  }
  ReduceInTurn();
  while (const std::optional<ChunkId> chunk = turns_.Awaited()) {
    if (Status opened = OpenZeros(*chunk); !opened.ok()) {
      if (!MakeRoom()) return memory_.WithEnough(opened);
      continue;
    }
    // This rank had none of it: it does not say when it is complete.
    Reduce(turns_.TakeAwaited());
    ReduceInTurn();
  }
  reducer_.EndMicroBatch();
  return OkStatus();
}

void LateGradients::Follow(std::optional<Access> until, bool flush) {
  if (!follows_plan_ || progress_.micro_batches == 0 ||
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
  const bool written = reducer_.written(access.chunk);
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
  if (waits) waiting_[chunk.index()].opened_at = Position();
  return OkStatus();
}

}  // namespace castor::internal
