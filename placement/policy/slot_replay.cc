// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/slot_replay.h"

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"
#include "placement/policy/trace_pins.h"

namespace castor::internal {

SlotReplay::SlotReplay(const Trace& trace, const PlanProblem& problem,
                       DropScore score)
    : trace_(trace),
      problem_(problem),
      score_(std::move(score)),
      uses_(problem.param_class.size()) {
  for (size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].kind == AccessKind::kUse &&
        problem.param_class[trace[i].chunk.index()] != kNoSlotClass) {
      uses_[trace[i].chunk.index()].push_back(static_cast<int64_t>(i));
    }
  }
}

ServedTrace SlotReplay::Run(const std::vector<ChunkId>& kept) {
  slots_.clear();
  for (int64_t count : problem_.slots) {
    slots_.emplace_back(static_cast<size_t>(count));
  }
  taken_.assign(problem_.slots.size(), {});
  at_.assign(uses_.size(), nullptr);
  grad_at_.assign(uses_.size(), nullptr);
  pins_.assign(uses_.size(), 0);
  dropped_at_.assign(uses_.size(), -1);
  next_.assign(uses_.size(), 0);
  served_ = ServedTrace();
  if (!trace_.empty()) {
    for (size_t c = 0; c < slots_.size(); ++c) {
      Take(c, -1, problem_.TakenDuring(c, 0));
    }
  }
  for (ChunkId chunk : kept) {
    Slot* slot = FreeSlot(Index(problem_.param_class[chunk.index()]));
    CASTOR_CHECK(slot != nullptr);
    slot->copy = chunk;
    at_[chunk.index()] = slot;
  }
  for (size_t i = 0; i < trace_.size(); ++i) {
    const int64_t moment = static_cast<int64_t>(i);
    for (size_t c = 0; c < slots_.size(); ++c) {
      Untake(c, moment, problem_.TakenDuring(c, i));
    }
    Serve(moment);
    for (size_t c = 0; c < slots_.size(); ++c) {
      Take(c, moment, problem_.TakenAfter(c, i));
    }
  }
  for (size_t c = 0; c < at_.size(); ++c) {
    if (at_[c] != nullptr && problem_.survives_step[c]) {
      served_.survivors.push_back(ChunkId(static_cast<int32_t>(c)));
    }
  }
  return std::move(served_);
}

// The first use at or after `moment`; a chunk whose copy survives the step is
// used again in the next one.
int64_t SlotReplay::NextUse(size_t chunk, int64_t moment) {
  const std::vector<int64_t>& uses = uses_[chunk];
  size_t& next = next_[chunk];
  while (next < uses.size() && uses[next] < moment) ++next;
  if (next < uses.size()) return uses[next];
  if (problem_.survives_step[chunk] && !uses.empty()) {
    return uses[0] + static_cast<int64_t>(trace_.size());
  }
  return kNeverUsed;
}

// The free slot that has been idle longest; null when there is none.
SlotReplay::Slot* SlotReplay::FreeSlot(size_t slot_class) {
  Slot* best = nullptr;
  for (Slot& slot : slots_[slot_class]) {
    if (slot.copy.valid() || slot.blocked) continue;
    if (best == nullptr || slot.idle_since < best->idle_since) best = &slot;
  }
  return best;
}

SlotReplay::Slot* SlotReplay::VictimSlot(size_t slot_class, int64_t moment) {
  Slot* best = nullptr;
  double best_score = 0;
  for (Slot& slot : slots_[slot_class]) {
    if (!slot.copy.valid() || pins_[slot.copy.index()] > 0) continue;
    const double score =
        score_(slot.copy, moment, NextUse(slot.copy.index(), moment));
    if (best == nullptr || score > best_score ||
        (score == best_score && slot.idle_since < best->idle_since)) {
      best_score = score;
      best = &slot;
    }
  }
  return best;
}

SlotReplay::Slot& SlotReplay::TakeSlot(size_t slot_class, int64_t moment,
                                       ChunkId* victim) {
  if (Slot* free = FreeSlot(slot_class); free != nullptr) return *free;
  Slot* slot = VictimSlot(slot_class, moment);
  CASTOR_CHECK(slot != nullptr);  // CheckFits
  *victim = slot->copy;
  at_[slot->copy.index()] = nullptr;
  slot->copy = ChunkId();
  return *slot;
}

SlotReplay::Slot& SlotReplay::BlockSlot(size_t slot_class, int64_t moment,
                                        size_t slice) {
  RoomDrop drop{ChunkId(), slice};
  Slot& slot = TakeSlot(slot_class, moment, &drop.chunk);
  if (drop.chunk.valid()) {
    served_.drops.push_back(drop);
    dropped_at_[drop.chunk.index()] = moment;
  }
  slot.blocked = true;
  return slot;
}

void SlotReplay::Untake(size_t slot_class, int64_t moment, int64_t taken) {
  std::vector<Slot*>& blocked = taken_[slot_class];
  while (static_cast<int64_t>(blocked.size()) > taken) {
    blocked.back()->blocked = false;
    blocked.back()->idle_since = moment;
    blocked.pop_back();
  }
}

void SlotReplay::Take(size_t slot_class, int64_t moment, int64_t taken) {
  std::vector<Slot*>& blocked = taken_[slot_class];
  while (static_cast<int64_t>(blocked.size()) < taken) {
    blocked.push_back(
        &BlockSlot(slot_class, moment, static_cast<size_t>(2 * moment + 1)));
  }
}

void SlotReplay::DropCopy(size_t chunk, int64_t moment) {
  dropped_at_[chunk] = moment;
  if (at_[chunk] == nullptr) return;
  at_[chunk]->copy = ChunkId();
  at_[chunk]->idle_since = moment;
  at_[chunk] = nullptr;
}

void SlotReplay::Serve(int64_t moment) {
  const ChunkId id = trace_[static_cast<size_t>(moment)].chunk;
  const size_t chunk = id.index();
  const int32_t param_class = problem_.param_class[chunk];
  switch (trace_[static_cast<size_t>(moment)].kind) {
    case AccessKind::kUse:
      if (param_class == kNoSlotClass) return;
      if (at_[chunk] == nullptr) {
        DemandFetch fetch{id, ChunkId(), moment, -1};
        Slot& slot = TakeSlot(Index(param_class), moment, &fetch.victim);
        fetch.not_before = std::max(slot.idle_since, dropped_at_[chunk]);
        slot.copy = id;
        at_[chunk] = &slot;
        served_.fetches.push_back(fetch);
      }
      ++pins_[chunk];
      at_[chunk]->idle_since = moment;
      return;
    case AccessKind::kUseEnd:
      if (param_class == kNoSlotClass) return;
      --pins_[chunk];
      at_[chunk]->idle_since = moment;
      return;
    case AccessKind::kGradOpen:
      if (problem_.grad_class[chunk] == kNoSlotClass) return;
      grad_at_[chunk] = &BlockSlot(Index(problem_.grad_class[chunk]), moment,
                                   static_cast<size_t>(2 * moment));
      return;
    case AccessKind::kGradClose:
      if (problem_.grad_class[chunk] == kNoSlotClass) {
        DropCopy(chunk, moment);
        return;
      }
      grad_at_[chunk]->blocked = false;
      grad_at_[chunk]->idle_since = moment;
      grad_at_[chunk] = nullptr;
      return;
  }
}

}  // namespace castor::internal
