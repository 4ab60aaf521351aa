// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/tier_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/budget_text.h"
#include "chunk/text/units_text.h"

namespace castor {

Event TierPool::AllFree(int32_t slot_class) const {
  const ClassState& state = State(slot_class);
  std::vector<Event> events;
  for (size_t i = 0; i < state.taken.size(); ++i) {
    if (!state.taken[i]) events.push_back(state.free_after[i]);
  }
  return AllOf(events);
}

Status TierPool::Full(int32_t slot_class) const {
  const ClassState& state = State(slot_class);
  return TierFull(fmt::format(
      "all {} slots of class {} of the {} pool, each of {}, are taken; {} "
      "of its budget of {} are in use: give one back first",
      state.shape.slots, slot_class, TierName(tier_),
      FormatBytes(state.shape.slot_bytes), FormatBytes(stats_.in_use),
      BudgetText(stats_.budget)));
}

Result<Slot> TierPool::Take(int32_t slot_class, SlotHold hold) {
  if (State(slot_class).free_slots == 0) [[unlikely]] {
    return Full(slot_class);
  }
  return Grant(slot_class, hold);
}

Status TierPool::TakeNext(int32_t slot_class, SlotHold hold, Granted granted) {
  ClassState& state = State(slot_class);
  if (state.free_slots > 0) {
    granted(Grant(slot_class, hold));
    return OkStatus();
  }
  const auto waiting = static_cast<int64_t>(state.waiting.size());
  if (waiting >= state.passing) {
    return Full(slot_class)
        .WithContext(fmt::format(
            "nothing to wait for: {} of them are on their way back and {} "
            "requests wait for these already",
            state.passing, waiting));
  }
  state.waiting.emplace_back(hold, std::move(granted));
  return OkStatus();
}

Slot TierPool::Grant(int32_t slot_class, SlotHold hold) {
  ClassState& state = State(slot_class);
  const int32_t index = state.free[state.first_free];
  state.first_free = (state.first_free + 1) % state.free.size();
  --state.free_slots;
  const auto i = static_cast<size_t>(index);
  CASTOR_CHECK(!state.taken[i]);
  state.taken[i] = true;
  state.settled[i] = hold == SlotHold::kSettled;
  state.passing += hold == SlotHold::kPassing;

  Slot slot;
  slot.slot_class = slot_class;
  slot.index = index;
  const ClassState::Added place = PlaceOf(state, index);
  slot.offset = place.offset;
  slot.size = state.shape.slot_bytes;
  slot.data = place.data;
  slot.free_after = std::exchange(state.free_after[i], Event());

  stats_.in_use += slot.size;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  ++stats_.takes;
  CheckBudget();
  return slot;
}

void TierPool::MarkPassing(const Slot& slot) {
  ClassState& state = State(slot.slot_class);
  const auto i = static_cast<size_t>(slot.index);
  CASTOR_CHECK(state.taken[i]);
  if (!state.settled[i]) return;
  state.settled[i] = false;
  ++state.passing;
}

void TierPool::Give(const Slot& slot, Event free_after) {
  ClassState& state = State(slot.slot_class);
  CASTOR_CHECK(slot.index >= 0 && slot.index < state.shape.slots);
  const auto i = static_cast<size_t>(slot.index);
  // Of this pool, and not given back already.
  const ClassState::Added place = PlaceOf(state, slot.index);
  CASTOR_CHECK_EQ(slot.offset, place.offset);
  CASTOR_CHECK(slot.data == place.data);
  CASTOR_CHECK(state.taken[i]);
  state.taken[i] = false;
  state.passing -= !state.settled[i];
  state.settled[i] = false;
  if (on_give_) free_after = on_give_(slot, std::move(free_after));
  state.free_after[i] = std::move(free_after);
  state.free[(state.first_free + state.free_slots++) % state.free.size()] =
      slot.index;

  stats_.in_use -= slot.size;
  ++stats_.gives;
  CheckBudget();
  if (state.waiting.empty()) [[likely]] {
    return;
  }
  const auto [hold, granted] = std::move(state.waiting.front());
  state.waiting.pop_front();
  // Last: it may give and take itself.
  granted(Grant(slot.slot_class, hold));
}

int64_t TierPool::free_slots(int32_t slot_class) const {
  return static_cast<int64_t>(State(slot_class).free_slots);
}

int64_t TierPool::waiting(int32_t slot_class) const {
  return static_cast<int64_t>(State(slot_class).waiting.size());
}

int32_t TierPool::SmallestClass(Bytes size, bool free) const {
  int32_t best = -1;
  for (int32_t c = 0; c < classes(); ++c) {
    const SlotClass& shape = slot_class(c);
    if (shape.slot_bytes < size || shape.slots == 0) continue;
    if (free && free_slots(c) == 0) continue;
    if (best < 0 || shape.slot_bytes < slot_class(best).slot_bytes) best = c;
  }
  return best;
}

const SlotClass& TierPool::slot_class(int32_t slot_class) const {
  return State(slot_class).shape;
}

TierPool::ClassState::Added TierPool::PlaceOf(const ClassState& state,
                                              int64_t index) {
  const auto added = static_cast<int64_t>(state.added.size());
  const int64_t cut = state.shape.slots - added;
  if (index >= cut) return state.added[static_cast<size_t>(index - cut)];
  const Bytes from_first = state.shape.slot_bytes * index;
  return {state.offset + from_first,
          state.base == nullptr ? nullptr : state.base + from_first.count()};
}

const TierPool::ClassState& TierPool::State(int32_t slot_class) const {
  CASTOR_CHECK(slot_class >= 0 && slot_class < classes());
  return classes_[static_cast<size_t>(slot_class)];
}

TierPool::ClassState& TierPool::State(int32_t slot_class) {
  return const_cast<ClassState&>(std::as_const(*this).State(slot_class));
}

void TierPool::CheckBudget() const {
  Bytes taken;
  for (const ClassState& state : classes_) {
    const auto free = static_cast<int64_t>(state.free_slots);
    CASTOR_CHECK_LE(free, state.shape.slots);
    CASTOR_CHECK(state.passing >= 0 &&
                 state.passing <= state.shape.slots - free);
    taken += state.shape.slot_bytes * (state.shape.slots - free);
  }
  CASTOR_CHECK_EQ(stats_.in_use, taken);
  CASTOR_CHECK_LE(stats_.in_use, stats_.reserved);
  CASTOR_CHECK_LE(stats_.reserved, stats_.budget);
  CASTOR_CHECK_LE(stats_.gives, stats_.takes);
}

}  // namespace castor
