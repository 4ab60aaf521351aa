// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TIMELINE_SLOT_POOL_H_
#define CASTOR_PLACEMENT_TIMELINE_SLOT_POOL_H_

// Slots for gathered chunks, by class, that hold nothing: handed out as
// offload/memory/tier_pool.h does it, the one that has been free for longest
// first, each with the event after which its bytes may be written. Owner thread
// only. Part of the event loop (event_loop.h).

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "chunk/base/units.h"
#include "placement/timeline/event_loop.h"

namespace castor::internal {

struct SimSlot {
  int32_t slot_class = -1;
  int32_t index = -1;
  SimEvent free_after;  // its previous user's last event
};

class SlotPool {
 public:
  // By class: how many slots, and of how many bytes.
  SlotPool(std::span<const int64_t> slots, std::span<const Bytes> slot_bytes);

  size_t classes() const { return classes_.size(); }
  int64_t slots(int32_t slot_class) const {
    return std::ssize(Of(slot_class).free_after);
  }
  int64_t free_slots(int32_t slot_class) const {
    return std::ssize(Of(slot_class).free);
  }
  Bytes slot_bytes(int32_t slot_class) const { return Of(slot_class).bytes; }

  // REQUIRES: one is free.
  SimSlot Take(int32_t slot_class);
  void Give(const SimSlot& slot, SimEvent free_after);

  // The most that was taken at one time.
  Bytes peak() const { return peak_; }

 private:
  struct SlotClass {
    Bytes bytes;
    std::deque<int32_t> free;  // the one that has been for longest first
    std::vector<SimEvent> free_after;  // by index
  };

  const SlotClass& Of(int32_t slot_class) const {
    return classes_[static_cast<size_t>(slot_class)];
  }

  std::vector<SlotClass> classes_;
  Bytes in_use_;
  Bytes peak_;
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_TIMELINE_SLOT_POOL_H_
