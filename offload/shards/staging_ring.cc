// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/shards/staging_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/raises_text.h"
#include "chunk/text/units_text.h"

namespace castor {

StagingRing::StagingRing(TierPool* host, int32_t slot_class, int64_t slots,
                         int64_t for_fetch)
    : pool_(host) {
  CASTOR_CHECK(for_fetch == 0 || for_fetch < slots);
  Grow(slot_class, slots);
  own_slots_ = slots;
  fetch_slots_ = for_fetch;
  for (int64_t i = 0; i < for_fetch; ++i) {
    const Slot& slot = free_.back();
    fetch_names_.emplace_back(slot.slot_class, slot.index);
    fetch_free_.push_back(std::move(free_.back()));
    free_.pop_back();
  }
}

StagingRing::~StagingRing() {
  std::move(fetch_free_.begin(), fetch_free_.end(), std::back_inserter(free_));
  fetch_free_.clear();
  fetch_slots_ = own_slots_ = 0;
  Shrink();
}

void StagingRing::Grow(int32_t slot_class, int64_t slots) {
  for (int64_t i = 0; i < slots; ++i) {
    Result<Slot> slot = pool_->Take(slot_class, SlotHold::kSettled);
    CASTOR_CHECK(slot.ok());
    if (slots_ == 0 || slot->size < slot_bytes_) slot_bytes_ = slot->size;
    free_.push_back(*std::move(slot));
    ++slots_;
  }
}

void StagingRing::Shrink() {
  CASTOR_CHECK_EQ(here(), slots_);
  CASTOR_CHECK(waiting_.empty());
  // Which of them go does not matter to the ring, but to the pool, whose
  // classes may go too: the last ones of all classes.
  std::sort(free_.begin(), free_.end(), [](const Slot& a, const Slot& b) {
    return std::pair(a.slot_class, a.index) < std::pair(b.slot_class, b.index);
  });
  while (slots_ > own_slots_) {
    const Slot& slot = free_.back();
    slot.free_after.Wait().IgnoreError();  // whose use it was has reported it
    pool_->Give(slot, Event());
    free_.pop_back();
    --slots_;
  }
  slot_bytes_ = Bytes(0);
  for (const Slot& slot : free_) {
    if (slot_bytes_ == Bytes(0) || slot.size < slot_bytes_) {
      slot_bytes_ = slot.size;
    }
  }
}

Status StagingRing::CheckServable(int64_t count, StagingUse use) const {
  const int64_t slots = Separate(use) ? fetch_slots_ : slots_ - fetch_slots_;
  if (count <= slots) return OkStatus();
  return DoesNotFit(
      fmt::format(
          "{} staging slots of host memory are needed at once and there "
          "are {} of {}",
          count, slots, FormatBytes(slot_bytes_)),
      {RaiseOf(Tier::kHost, slot_bytes_ * (count - slots))},
      "or work on fewer shards at once");
}

Status StagingRing::Take(int64_t count, StagingUse use, Granted granted) {
  CASTOR_CHECK_GE(count, 0);
  CASTOR_RETURN_IF_ERROR(CheckServable(count, use));
  Request request{count, use, std::move(granted)};
  if (GrantsNow(count, use)) {
    Grant(request);
    return OkStatus();
  }
  ++waits_;
  waiting_.push_back(std::move(request));
  return OkStatus();
}

Slot StagingRing::TakeOne(StagingUse use) {
  CASTOR_CHECK(GrantsNow(1, use));
  std::deque<Slot>& free = FreeFor(use);
  Slot slot = std::move(free.front());
  free.pop_front();
  return slot;
}

void StagingRing::Give(Slot slot, Event free_after) {
  slot.free_after = std::move(free_after);
  const bool for_fetch =
      std::find(fetch_names_.begin(), fetch_names_.end(),
                std::pair(slot.slot_class, slot.index)) != fetch_names_.end();
  (for_fetch ? fetch_free_ : free_).push_back(std::move(slot));
  CASTOR_CHECK_LE(here(), slots_);
  // What is granted may give back, and ask, itself: in its turn.
  if (serving_) return;
  serving_ = true;
  while (!waiting_.empty() &&
         waiting_.front().count <= std::ssize(FreeFor(waiting_.front().use))) {
    const Request request = std::move(waiting_.front());
    waiting_.pop_front();
    Grant(request);
  }
  serving_ = false;
}

void StagingRing::Grant(const Request& request) {
  std::vector<Slot> slots;
  slots.reserve(static_cast<size_t>(request.count));
  std::deque<Slot>& free = FreeFor(request.use);
  for (int64_t i = 0; i < request.count; ++i) {
    slots.push_back(std::move(free.front()));
    free.pop_front();
  }
  request.granted(slots);
}

Event StagingRing::AllFree() const {
  std::vector<Event> events;
  events.reserve(static_cast<size_t>(here()));
  for (const auto* free : {&free_, &fetch_free_}) {
    for (const Slot& slot : *free) events.push_back(slot.free_after);
  }
  return AllOf(events);
}

}  // namespace castor
