// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/simulation/gathered_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "chunk/base/units_text.h"
#include "placement/next_use_policy.h"
#include "placement/step_planner.h"

namespace castor::internal {

GatheredCopies::GatheredCopies(EventLoop* loop, const SimulatedEngine* engine,
                               CopySource* source)
    : loop_(loop),
      engine_(engine),
      source_(source),
      copies_(engine->chunks.size()),
      places_(engine->problem.slots.size()),
      initial_(engine->chunks.size(), false),
      initial_shards_(engine->chunks.size(), false),
      before_evaluation_(engine->chunks.size(), false) {
  for (const int64_t slots : engine->problem.slots) {
    SlotClass& made = classes_.emplace_back();
    for (int32_t i = 0; i < slots; ++i) made.free.push_back(i);
    made.free_after.resize(static_cast<size_t>(slots));
  }
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
  const size_t moment = trace_.size();
  const Access access{kind, chunk};
  trace_.push_back(access);
  if (!plan_ || diverged_) return;
  if (moment >= planned_trace_.size() || planned_trace_[moment] != access) {
    diverged_ = true;
    ++counts_.divergences;
    DropUnusedPrefetches(chunk);
    return;
  }
  MakeMoves(2 * moment);
}

void GatheredCopies::Served() {
  if (evaluating_ || !plan_ || diverged_) return;
  MakeMoves(2 * (trace_.size() - 1) + 1);
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
        DropShard(move.chunk);
        break;
    }
  }
}

Status GatheredCopies::Acquire(ChunkId chunk, SimLane& lane) {
  Begin(AccessKind::kUse, chunk);
  if (last_used_.valid() && chunk != last_used_) forward_ = chunk > last_used_;
  last_used_ = chunk;
  SimEvent ready;
  RunCause cause = RunCause::kOptimizer;
  if (param_class(chunk) == kNoSlotClass) {
    ready = source_->DirectReady(chunk);
  } else {
    Copy& copy = copies_[chunk.index()];
    if (!copy.there) CASTOR_RETURN_IF_ERROR(Gather(chunk, RunCause::kDemand));
    if (!copy.used && copy.cause == RunCause::kPrefetch && !copy.ready.done()) {
      source_->Raise(chunk);
    }
    copy.used = true;
    ++copy.pins;
    ready = copy.ready;
    cause = copy.cause;
  }
  // What is fetched ahead is queued before anybody waits.
  Served();
  WaitOn(lane, ready, cause);
  return OkStatus();
}

void GatheredCopies::EndUse(ChunkId chunk, SimLane& lane) {
  Begin(AccessKind::kUseEnd, chunk);
  SimEvent end = lane.Record();
  if (param_class(chunk) == kNoSlotClass) {
    source_->DirectUsed(chunk, std::move(end));
  } else {
    Copy& copy = copies_[chunk.index()];
    if (!end.done()) {
      std::erase_if(copy.users, [](const SimEvent& e) { return e.done(); });
      copy.users.push_back(std::move(end));
    }
    --copy.pins;
  }
  Served();
}

Result<GatheredCopies::Slot> GatheredCopies::OpenGrad(ChunkId chunk,
                                                      SimLane& lane) {
  Begin(AccessKind::kGradOpen, chunk);
  Slot slot;
  if (!InPlace(chunk)) {
    CASTOR_ASSIGN_OR_RETURN(slot, Borrow(chunk));
  }
  Served();
  WaitOn(lane, slot.free_after, RunCause::kGradient);
  return slot;
}

void GatheredCopies::CloseGrad(ChunkId chunk, const Slot& slot,
                               SimEvent free_after) {
  Begin(AccessKind::kGradClose, chunk);
  Copy& copy = copies_[chunk.index()];
  if (!InPlace(chunk)) {
    Return(slot, std::move(free_after));
  } else if (param_class(chunk) == kNoSlotClass) {
    source_->DirectUsed(chunk, std::move(free_after));
  } else if (copy.there) {
    copy.users.push_back(std::move(free_after));
    Drop(chunk);
  }
  Served();
}

Result<GatheredCopies::Slot> GatheredCopies::Borrow(ChunkId chunk) {
  return TakeSlot(engine_->problem.passing_class(chunk), chunk);
}

void GatheredCopies::Return(const Slot& slot, SimEvent free_after) {
  SlotClass& of = classes_[static_cast<size_t>(slot.slot_class)];
  of.free_after[static_cast<size_t>(slot.index)] = std::move(free_after);
  of.free.push_back(slot.index);
  in_use_ -= engine_->slot_bytes[static_cast<size_t>(slot.slot_class)];
}

Result<GatheredCopies::Slot> GatheredCopies::TakeSlot(int32_t slot_class,
                                                      ChunkId wanted_for) {
  SlotClass& of = classes_[static_cast<size_t>(slot_class)];
  const Bytes size = engine_->slot_bytes[static_cast<size_t>(slot_class)];
  while (of.free.empty()) {
    if (DropOne(slot_class, wanted_for) ||
        GiveShardSlot(static_cast<size_t>(slot_class))) {
      continue;
    }
    return Infeasible(fmt::format(
        "moment {}{}: chunk {} needs a gathered slot of {} and all {} are "
        "held; raise the device budget by {}, or hold less at once",
        static_cast<int64_t>(trace_.size()) - 1,
        evaluating_ ? ", in an evaluation after it" : "", wanted_for.value(),
        FormatBytes(size), of.free_after.size(), FormatBytes(size)));
  }
  return TakeFree(slot_class);
}

GatheredCopies::Slot GatheredCopies::TakeFree(int32_t slot_class) {
  SlotClass& of = classes_[static_cast<size_t>(slot_class)];
  Slot slot{slot_class, of.free.front(), SimEvent()};
  of.free.pop_front();
  slot.free_after =
      std::exchange(of.free_after[static_cast<size_t>(slot.index)], SimEvent());
  in_use_ += engine_->slot_bytes[static_cast<size_t>(slot_class)];
  peak_ = std::max(peak_, in_use_);
  return slot;
}

bool GatheredCopies::DropOne(int32_t slot_class, ChunkId wanted_for) {
  std::vector<ChunkId> candidates;
  for (size_t c = 0; c < copies_.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    if (copies_[c].there && copies_[c].pins == 0 &&
        param_class(chunk) == slot_class) {
      candidates.push_back(chunk);
    }
  }
  if (candidates.empty()) return false;
  Drop(FirstStepVictim(candidates, wanted_for, forward_));
  return true;
}

Status GatheredCopies::Gather(ChunkId chunk, RunCause cause) {
  CASTOR_ASSIGN_OR_RETURN(Slot slot, TakeSlot(param_class(chunk), chunk));
  Copy& copy = copies_[chunk.index()];
  if (copy.place >= 0) {
    copy.ready = source_->GatherFrom(copy.shard_ready, chunk, slot.free_after);
    copy.shard_busy = copy.ready;
  } else {
    copy.ready = source_->Gather(chunk, slot.free_after, cause);
    ++counts_.fetches;
  }
  copy.there = true;
  copy.slot = std::move(slot);
  copy.cause = cause;
  copy.used = false;
  ++counts_.gathers;
  counts_.prefetched += cause == RunCause::kPrefetch;
  return OkStatus();
}

void GatheredCopies::Drop(ChunkId chunk) {
  Copy& copy = copies_[chunk.index()];
  copy.there = false;
  if (copy.cause == RunCause::kPrefetch && !copy.used && !copy.ready.done() &&
      source_->cancellable() && source_->Cancel(chunk)) {
    ++counts_.cancelled;
    copy.ready = std::move(copy.slot.free_after);
  }
  copy.users.push_back(std::move(copy.ready));
  Return(copy.slot, AllOf(copy.users));
  copy.users.clear();
  copy.ready = SimEvent();
  ++counts_.releases;
}

void GatheredCopies::HoldShards(size_t slot_class, int64_t slots) {
  Places& places = places_[slot_class];
  while (std::ssize(places.slots) > slots) GiveShardSlot(slot_class);
  const auto per_slot =
      static_cast<size_t>(engine_->problem.ShardsPerSlot(slot_class));
  while (std::ssize(places.slots) < slots &&
         !classes_[slot_class].free.empty()) {
    Slot slot = TakeFree(static_cast<int32_t>(slot_class));
    places.holds.resize(places.holds.size() + per_slot);
    places.free_after.resize(places.holds.size(), slot.free_after);
    places.slots.push_back(std::move(slot));
  }
}

bool GatheredCopies::GiveShardSlot(size_t slot_class) {
  Places& places = places_[slot_class];
  if (places.slots.empty()) return false;
  const auto per_slot =
      static_cast<size_t>(engine_->problem.ShardsPerSlot(slot_class));
  const size_t first = places.holds.size() - per_slot;
  for (size_t place = first; place < places.holds.size(); ++place) {
    if (places.holds[place].valid()) DropShard(places.holds[place]);
  }
  Return(places.slots.back(),
         AllOf(std::span(places.free_after).subspan(first)));
  places.slots.pop_back();
  places.holds.resize(first);
  places.free_after.resize(first);
  return true;
}

void GatheredCopies::FetchShard(ChunkId chunk, RunCause cause) {
  Copy& copy = copies_[chunk.index()];
  Places& places = places_[static_cast<size_t>(param_class(chunk))];
  const auto free =
      std::find(places.holds.begin(), places.holds.end(), ChunkId());
  if (copy.place >= 0 || free == places.holds.end()) return;
  *free = chunk;
  copy.place = static_cast<int32_t>(free - places.holds.begin());
  copy.shard_ready = source_->FetchShard(
      chunk, places.free_after[static_cast<size_t>(copy.place)], cause);
  copy.shard_busy = copy.shard_ready;
  ++counts_.fetches;
}

void GatheredCopies::DropShard(ChunkId chunk) {
  Copy& copy = copies_[chunk.index()];
  if (copy.place < 0) return;
  const auto place = static_cast<size_t>(std::exchange(copy.place, -1));
  Places& places = places_[static_cast<size_t>(param_class(chunk))];
  places.holds[place] = ChunkId();
  places.free_after[place] = std::exchange(copy.shard_busy, SimEvent());
}

void GatheredCopies::BeginEvaluation() {
  evaluating_ = true;
  for (size_t c = 0; c < copies_.size(); ++c) {
    before_evaluation_[c] = copies_[c].there;
  }
}

void GatheredCopies::EndEvaluation() {
  evaluating_ = false;
  if (!plan_ || diverged_) return;
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c].there && copies_[c].pins == 0 && !before_evaluation_[c]) {
      Drop(ChunkId(static_cast<int32_t>(c)));
    }
  }
  const auto restore = [this](ChunkId chunk) {
    if (!before_evaluation_[chunk.index()] || copies_[chunk.index()].there) {
      return;
    }
    const auto slots = static_cast<size_t>(param_class(chunk));
    if (!classes_[slots].free.empty()) {
      Gather(chunk, RunCause::kPrefetch).IgnoreError();
    }
  };
  // What is used first comes back first.
  for (size_t i = trace_.size(); i < planned_trace_.size(); ++i) {
    restore(planned_trace_[i].chunk);
  }
  for (size_t c = 0; c < copies_.size(); ++c) {
    restore(ChunkId(static_cast<int32_t>(c)));
  }
}

Status GatheredCopies::EndStep() {
  if (!plan_ || diverged_ || trace_.size() != planned_trace_.size()) {
    counts_.divergences += plan_ && !diverged_;  // the step was shorter
    CASTOR_ASSIGN_OR_RETURN(
        const StepPlan made,
        PlanStep(engine_->policy, trace_, engine_->problem));
    Adopt(trace_, made.plan);
  }
  trace_.clear();
  diverged_ = false;
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (engine_->problem.survives_step[c]) continue;
    const ChunkId chunk(static_cast<int32_t>(c));
    if (copies_[c].there) Drop(chunk);
    DropShard(chunk);
  }
  return OkStatus();
}

void GatheredCopies::BeginStep() {
  for (size_t c = 0; c < copies_.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    if (copies_[c].there && !initial_[c]) Drop(chunk);
    if (!initial_shards_[c]) DropShard(chunk);
  }
  for (size_t k = 0; k < places_.size(); ++k) {
    HoldShards(k, plan_->ShardSlots(k));
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

void GatheredCopies::WaitOn(SimLane& lane, const SimEvent& ready,
                            RunCause cause) {
  if (ready.done()) return;
  // -1: by the time the lane got here, there was nothing to wait for.
  const auto begin = std::make_shared<int64_t>(-1);
  lane.Run([this, begin, ready] {
    if (!ready.done()) *begin = loop_->now_ns();
  });
  lane.Wait(ready);
  lane.Run([this, begin, cause] {
    if (*begin < 0) return;
    SimulatedStall& stall = counts_.stalls[static_cast<size_t>(cause)];
    ++stall.count;
    stall.ns += loop_->now_ns() - *begin;
  });
}

}  // namespace castor::internal
