// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/simulation/gathered_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
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
      initial_(engine->chunks.size(), false),
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
    if (move.kind == MoveKind::kRelease) {
      if (copy.there && copy.pins == 0) Drop(move.chunk);
    } else if (!copy.there) {
      // Without a slot the access itself will ask, and say what is held.
      Gather(move.chunk, move.cause).IgnoreError();
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
  CASTOR_ASSIGN_OR_RETURN(Slot slot, Borrow(chunk));
  Served();
  WaitOn(lane, slot.free_after, RunCause::kGradient);
  return slot;
}

void GatheredCopies::CloseGrad(ChunkId chunk, const Slot& slot,
                               SimEvent free_after) {
  Begin(AccessKind::kGradClose, chunk);
  Return(slot, std::move(free_after));
  Served();
}

Result<GatheredCopies::Slot> GatheredCopies::Borrow(ChunkId chunk) {
  return TakeSlot(engine_->problem.grad_class[chunk.index()], chunk);
}

void GatheredCopies::Return(const Slot& slot, SimEvent free_after) {
  SlotClass& of = classes_[static_cast<size_t>(slot.slot_class)];
  of.free_after[static_cast<size_t>(slot.index)] = std::move(free_after);
  of.free.push_back(slot.index);
  std::push_heap(of.free.begin(), of.free.end(), std::greater<>());
  in_use_ -= engine_->slot_bytes[static_cast<size_t>(slot.slot_class)];
}

Result<GatheredCopies::Slot> GatheredCopies::TakeSlot(int32_t slot_class,
                                                      ChunkId wanted_for) {
  SlotClass& of = classes_[static_cast<size_t>(slot_class)];
  const Bytes size = engine_->slot_bytes[static_cast<size_t>(slot_class)];
  while (of.free.empty()) {
    if (DropOne(slot_class, wanted_for)) continue;
    return Infeasible(fmt::format(
        "moment {}{}: chunk {} needs a gathered slot of {} and all {} are "
        "held; raise the device budget by {}, or hold less at once",
        static_cast<int64_t>(trace_.size()) - 1,
        evaluating_ ? ", in an evaluation after it" : "", wanted_for.value(),
        FormatBytes(size), of.free_after.size(), FormatBytes(size)));
  }
  std::pop_heap(of.free.begin(), of.free.end(), std::greater<>());
  Slot slot{slot_class, of.free.back(), SimEvent()};
  of.free.pop_back();
  slot.free_after =
      std::exchange(of.free_after[static_cast<size_t>(slot.index)], SimEvent());
  in_use_ += size;
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
  copy.ready = source_->Gather(chunk, slot.free_after, cause);
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
    if (copies_[c].there && !engine_->problem.survives_step[c]) {
      Drop(ChunkId(static_cast<int32_t>(c)));
    }
  }
  return OkStatus();
}

void GatheredCopies::BeginStep() {
  for (size_t c = 0; c < copies_.size(); ++c) {
    if (copies_[c].there && !initial_[c]) {
      Drop(ChunkId(static_cast<int32_t>(c)));
    }
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
