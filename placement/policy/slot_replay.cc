// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/slot_replay.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

#include "chunk/base/check.h"
#include "placement/policy/trace_pins.h"

namespace castor::internal {

SlotReplay::SlotReplay(const Trace& trace, const PlanProblem& problem,
                       DropCost cost)
    : trace_(trace),
      problem_(problem),
      cost_(std::move(cost)),
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
  free_.clear();
  for (int64_t count : problem_.slots) {
    auto& free = free_.emplace_back();
    for (Slot& slot : slots_.emplace_back(static_cast<size_t>(count))) {
      slot.slot_class = slots_.size() - 1;
      free.emplace(slot.idle_since, &slot);
    }
  }
  idle_.assign(problem_.slots.size(), {});
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
    auto& free = free_[Index(problem_.param_class[chunk.index()])];
    CASTOR_CHECK(!free.empty());
    Slot& slot = *free.extract(free.begin()).value().second;
    slot.copy = chunk;
    at_[chunk.index()] = &slot;
    Idle(slot, -1);
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

bool SlotReplay::GoesLater::operator()(const Queued& a, const Queued& b) const {
  return std::tie(b.next_use, a.idle_since, a.slot) >
         std::tie(a.next_use, b.idle_since, b.slot);
}

void SlotReplay::Free(Slot& slot, int64_t moment) {
  slot.idle_since = moment;
  free_[slot.slot_class].emplace(moment, &slot);
}

void SlotReplay::Idle(Slot& slot, int64_t moment) {
  slot.idle_since = moment;
  const int64_t next_use = NextUse(slot.copy.index(), moment);
  const double cost = cost_(slot.copy, next_use);
  // The distance decides only where it is weighed by a cost.
  const bool weighed = cost > 0 && std::isfinite(cost);
  idle_[slot.slot_class][cost].push({weighed ? next_use : 0, moment, &slot});
}

// A slot holds no other copy without another moment of its last access.
bool SlotReplay::IsIdle(const Queued& queued) const {
  const Slot& slot = *queued.slot;
  return slot.copy.valid() && pins_[slot.copy.index()] == 0 &&
         slot.idle_since == queued.idle_since;
}

SlotReplay::Slot* SlotReplay::VictimSlot(size_t slot_class, int64_t moment) {
  const Queued* best = nullptr;
  double best_score = 0;
  for (auto& [cost, queue] : idle_[slot_class]) {
    while (!queue.empty() && !IsIdle(queue.top())) queue.pop();
    if (queue.empty()) continue;
    const Queued& queued = queue.top();
    const double score =
        cost > 0 ? static_cast<double>(queued.next_use - moment) / cost
                 : std::numeric_limits<double>::infinity();
    if (best == nullptr || score > best_score ||
        (score == best_score && std::tie(queued.idle_since, queued.slot) <
                                    std::tie(best->idle_since, best->slot))) {
      best_score = score;
      best = &queued;
    }
  }
  return best == nullptr ? nullptr : best->slot;
}

ChunkId SlotReplay::Empty(Slot& slot) {
  const ChunkId copy = std::exchange(slot.copy, ChunkId());
  if (copy.valid()) at_[copy.index()] = nullptr;
  return copy;
}

// Takes the slot that has been idle longest, of those without a copy and those
// whose copy is never used again: then the fetch may begin early.
SlotReplay::Slot& SlotReplay::FetchSlot(size_t slot_class, int64_t moment) {
  auto& free = free_[slot_class];
  if (free.empty()) {
    Slot* victim = VictimSlot(slot_class, moment);
    CASTOR_CHECK(victim != nullptr);  // CheckFits
    return *victim;
  }
  const auto [idle_since, longest] = *free.begin();
  const auto worthless = idle_[slot_class].find(0);
  if (worthless != idle_[slot_class].end()) {
    SlotQueue& queue = worthless->second;
    while (!queue.empty() && !IsIdle(queue.top())) queue.pop();
    if (!queue.empty() && queue.top().idle_since < idle_since &&
        NextUse(queue.top().slot->copy.index(), moment) == kNeverUsed) {
      return *queue.top().slot;
    }
  }
  free.erase(free.begin());
  return *longest;
}

// Takes the slot that has been idle shortest, of those without a copy: fetches
// may begin earlier in the others.
SlotReplay::Slot& SlotReplay::BlockSlot(size_t slot_class, int64_t moment,
                                        size_t slice) {
  auto& free = free_[slot_class];
  if (!free.empty()) return *free.extract(std::prev(free.end())).value().second;
  Slot* slot = VictimSlot(slot_class, moment);
  CASTOR_CHECK(slot != nullptr);  // CheckFits
  const ChunkId copy = Empty(*slot);
  served_.drops.push_back({copy, slice});
  dropped_at_[copy.index()] = moment;
  return *slot;
}

void SlotReplay::Untake(size_t slot_class, int64_t moment, int64_t taken) {
  std::vector<Slot*>& blocked = taken_[slot_class];
  while (static_cast<int64_t>(blocked.size()) > taken) {
    Free(*blocked.back(), moment);
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
  Free(*at_[chunk], moment);
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
        Slot& slot = FetchSlot(Index(param_class), moment);
        served_.fetches.push_back(
            {id, Empty(slot), moment, slot.idle_since, dropped_at_[chunk]});
        slot.copy = id;
        at_[chunk] = &slot;
      }
      ++pins_[chunk];
      at_[chunk]->idle_since = moment;
      return;
    case AccessKind::kUseEnd:
      if (param_class == kNoSlotClass) return;
      if (--pins_[chunk] == 0) Idle(*at_[chunk], moment);
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
      Free(*grad_at_[chunk], moment);
      grad_at_[chunk] = nullptr;
      return;
  }
}

}  // namespace castor::internal
