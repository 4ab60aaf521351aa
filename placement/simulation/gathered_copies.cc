// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/simulation/gathered_copies.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "chunk/text/raises_text.h"
#include "chunk/text/units_text.h"
#include "placement/policy/next_use_policy.h"

namespace castor::internal {

GatheredCopies::GatheredCopies(const PlanProblem* problem,
                               std::span<const Bytes> slot_bytes,
                               CopySource* source)
    : problem_(problem),
      source_(source),
      pool_(problem->slots, slot_bytes),
      shards_(&pool_, problem),
      copies_(problem->param_class.size()),
      idle_(problem->slots.size()),
      initial_(copies_.size(), false),
      initial_shards_(copies_.size(), false),
      before_evaluation_(copies_.size(), false) {}

Result<GatheredCopies::Ready> GatheredCopies::Acquire(ChunkId chunk) {
  Begin(AccessKind::kUse, chunk);
  if (last_used_.valid() && chunk != last_used_) forward_ = chunk > last_used_;
  last_used_ = chunk;
  Ready ready;
  if (param_class(chunk) == kNoSlotClass) {
    ready = {source_->DirectReady(chunk), RunCause::kOptimizer};
  } else {
    Copy& copy = copies_[chunk.index()];
    if (!copy.there) CASTOR_RETURN_IF_ERROR(Gather(chunk, RunCause::kDemand));
    if (!copy.used && copy.cause == RunCause::kPrefetch && !copy.ready.done()) {
      source_->Raise(chunk);
    }
    copy.used = true;
    ++copy.pins;
    NoteIdle(chunk);
    ready = {copy.ready, copy.cause};
  }
  // What is fetched ahead is queued before anybody waits.
  Served();
  return ready;
}

void GatheredCopies::EndUse(ChunkId chunk, SimEvent end) {
  Begin(AccessKind::kUseEnd, chunk);
  if (param_class(chunk) == kNoSlotClass) {
    source_->DirectUsed(chunk, std::move(end));
  } else {
    Copy& copy = copies_[chunk.index()];
    if (!end.done()) {
      std::erase_if(copy.users, [](const SimEvent& e) { return e.done(); });
      copy.users.push_back(std::move(end));
    }
    --copy.pins;
    NoteIdle(chunk);
  }
  Served();
}

Result<SimSlot> GatheredCopies::OpenGrad(ChunkId chunk) {
  Begin(AccessKind::kGradOpen, chunk);
  SimSlot slot;
  if (!grad_in_place(chunk)) {
    CASTOR_ASSIGN_OR_RETURN(slot, Borrow(chunk));
  }
  Served();
  return slot;
}

void GatheredCopies::CloseGrad(ChunkId chunk, const SimSlot& slot,
                               SimEvent free_after) {
  Begin(AccessKind::kGradClose, chunk);
  if (!grad_in_place(chunk)) {
    Return(slot, std::move(free_after));
  } else if (copies_[chunk.index()].there) {
    Drop(chunk);
  }
  Served();
}

SimEvent GatheredCopies::UsesDone(ChunkId chunk) const {
  const Copy& copy = copies_[chunk.index()];
  std::vector<SimEvent> events = copy.users;
  events.push_back(copy.ready);
  return AllOf(events);
}

Result<SimSlot> GatheredCopies::Borrow(ChunkId chunk) {
  return TakeSlot(problem_->passing_class(chunk), chunk);
}

Result<SimSlot> GatheredCopies::TakeSlot(int32_t slot_class,
                                         ChunkId wanted_for) {
  while (pool_.free_slots(slot_class) == 0) {
    if (DropOne(slot_class, wanted_for) || shards_.GiveOne(slot_class)) {
      continue;
    }
    const Bytes size = pool_.slot_bytes(slot_class);
    return DoesNotFit(
        fmt::format("moment {}{}: chunk {} needs a gathered slot of {} and all "
                    "{} are held",
                    static_cast<int64_t>(accesses_) - 1,
                    evaluating_ ? ", in an evaluation after it" : "",
                    wanted_for.value(), FormatBytes(size),
                    pool_.slots(slot_class)),
        {RaiseOf(Tier::kDevice, size)}, "or hold less at once");
  }
  return pool_.Take(slot_class);
}

bool GatheredCopies::DropOne(int32_t slot_class, ChunkId wanted_for) {
  const std::set<ChunkId>& idle = idle_[static_cast<size_t>(slot_class)];
  if (idle.empty()) return false;
  // A sweep comes to the first or to the last of the idle chunks last.
  const ChunkId ends[] = {*idle.begin(), *idle.rbegin()};
  Drop(FirstStepVictim(ends, wanted_for, forward_));
  return true;
}

void GatheredCopies::NoteIdle(ChunkId chunk) {
  const Copy& copy = copies_[chunk.index()];
  std::set<ChunkId>& idle = idle_[static_cast<size_t>(param_class(chunk))];
  if (copy.there && copy.pins == 0) {
    idle.insert(chunk);
  } else {
    idle.erase(chunk);
  }
}

Status GatheredCopies::Gather(ChunkId chunk, RunCause cause) {
  CASTOR_ASSIGN_OR_RETURN(SimSlot slot, TakeSlot(param_class(chunk), chunk));
  Copy& copy = copies_[chunk.index()];
  copy.from_shard = shards_.has(chunk);
  if (copy.from_shard) {
    copy.ready =
        source_->GatherFrom(shards_.ready(chunk), chunk, slot.free_after);
    shards_.AddReader(chunk, copy.ready);
  } else {
    copy.ready = source_->Gather(chunk, slot.free_after, cause);
    CountFetch(cause);
  }
  copy.there = true;
  NoteIdle(chunk);
  copy.slot = std::move(slot);
  copy.cause = cause;
  copy.used = false;
  counts_.prefetched += cause == RunCause::kPrefetch;
  return OkStatus();
}

void GatheredCopies::Drop(ChunkId chunk) {
  Copy& copy = copies_[chunk.index()];
  copy.there = false;
  NoteIdle(chunk);
  if (copy.cause == RunCause::kPrefetch && !copy.used && !copy.from_shard &&
      !copy.ready.done() && source_->cancellable() && source_->Cancel(chunk)) {
    ++counts_.cancelled;
    copy.ready = std::move(copy.slot.free_after);
  }
  copy.users.push_back(std::move(copy.ready));
  Return(copy.slot, AllOf(copy.users));
  copy.users.clear();
  copy.ready = SimEvent();
  ++counts_.releases;
}

void GatheredCopies::FetchShard(ChunkId chunk, RunCause cause) {
  if (shards_.has(chunk) || !shards_.has_place(chunk)) return;
  copies_[chunk.index()].from_shard = true;  // no longer its last load
  const SimEvent free_after = shards_.Take(chunk);
  shards_.SetReady(chunk, source_->FetchShard(chunk, free_after, cause));
  CountFetch(cause);
}

void GatheredCopies::Adopt(const Trace& trace, const Plan& plan) {
  planned_trace_ = trace;
  plan_ = plan;
  initial_.assign(copies_.size(), false);
  for (const ChunkId chunk : plan.initial) initial_[chunk.index()] = true;
  initial_shards_.assign(copies_.size(), false);
  for (const ChunkId chunk : plan.initial_shards) {
    initial_shards_[chunk.index()] = true;
  }
}

void GatheredCopies::Begin(AccessKind kind, ChunkId chunk) {
  if (evaluating_) return;
  const size_t moment = accesses_++;
  if (!planned()) return;
  if (moment >= planned_trace_.size() ||
      planned_trace_[moment] != Access{kind, chunk}) {
    diverged_ = true;
    ++counts_.divergences;
    DropUnusedPrefetches(chunk);
    return;
  }
  MakeMoves(2 * moment);
}

void GatheredCopies::Served() {
  if (!evaluating_ && planned()) MakeMoves(2 * (accesses_ - 1) + 1);
}

void GatheredCopies::DropUnusedPrefetches(ChunkId wanted) {
  if (!source_->cancellable()) return;
  for (size_t c = 0; c < copies_.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const Copy& copy = copies_[c];
    if (chunk != wanted && copy.there && copy.pins == 0 && !copy.used &&
        copy.cause == RunCause::kPrefetch) {
      Drop(chunk);
    }
  }
}

void GatheredCopies::MakeMoves(size_t slice) {
  for (int32_t m = plan_->first_move[slice]; m < plan_->first_move[slice + 1];
       ++m) {
    const Move& move = plan_->moves[static_cast<size_t>(m)];
    const Copy& copy = copies_[move.chunk.index()];
    switch (move.kind) {
      case MoveKind::kGather:
        // Without a slot the access itself will ask, and say what is held.
        if (!copy.there) Gather(move.chunk, move.cause).IgnoreError();
        break;
      case MoveKind::kRelease:
        if (copy.there && copy.pins == 0) Drop(move.chunk);
        break;
      case MoveKind::kFetchShard:
        if (!copy.there) FetchShard(move.chunk, move.cause);
        break;
      case MoveKind::kDropShard:
        if (shards_.has(move.chunk)) shards_.Drop(move.chunk);
        break;
    }
  }
}

void GatheredCopies::BeginEvaluation() {
  evaluating_ = true;
  for (size_t c = 0; c < copies_.size(); ++c) {
    before_evaluation_[c] = copies_[c].there;
  }
}

void GatheredCopies::EndEvaluation() {
  evaluating_ = false;
  if (!planned()) return;
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c].there && copies_[c].pins == 0 && !before_evaluation_[c]) {
      Drop(ChunkId(static_cast<int32_t>(c)));
    }
  }
  const auto restore = [this](ChunkId chunk) {
    if (before_evaluation_[chunk.index()] && !copies_[chunk.index()].there &&
        pool_.free_slots(param_class(chunk)) > 0) {
      Gather(chunk, RunCause::kPrefetch).IgnoreError();
    }
  };
  // What is used first comes back first.
  for (size_t i = accesses_; i < planned_trace_.size(); ++i) {
    restore(planned_trace_[i].chunk);
  }
  for (size_t c = 0; c < copies_.size(); ++c) {
    restore(ChunkId(static_cast<int32_t>(c)));
  }
}

bool GatheredCopies::EndStep() {
  const bool shorter = planned() && accesses_ != planned_trace_.size();
  counts_.divergences += shorter;
  const bool as_planned = planned() && !shorter;
  accesses_ = 0;
  diverged_ = false;
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (problem_->survives_step[c]) continue;
    const ChunkId chunk(static_cast<int32_t>(c));
    if (copies_[c].there) Drop(chunk);
    if (shards_.has(chunk)) shards_.Drop(chunk);
  }
  return !as_planned;
}

void GatheredCopies::BeginStep() {
  if (!plan_) return;
  for (size_t c = 0; c < copies_.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    if (copies_[c].there && !initial_[c]) Drop(chunk);
    if (!initial_shards_[c] && shards_.has(chunk)) shards_.Drop(chunk);
  }
  for (size_t k = 0; k < pool_.classes(); ++k) {
    shards_.Hold(static_cast<int32_t>(k), plan_->ShardSlots(k));
  }
  for (const ChunkId chunk : plan_->initial_shards) {
    FetchShard(chunk, RunCause::kPrefetch);
  }
  for (const ChunkId chunk : plan_->initial) {
    if (!copies_[chunk.index()].there) {
      Gather(chunk, RunCause::kPrefetch).IgnoreError();
    }
  }
}

}  // namespace castor::internal
