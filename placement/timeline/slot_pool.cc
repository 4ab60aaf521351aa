// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/timeline/slot_pool.h"

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"

namespace castor::internal {

SlotPool::SlotPool(std::span<const int64_t> slots,
                   std::span<const Bytes> slot_bytes) {
  CASTOR_CHECK_EQ(slots.size(), slot_bytes.size());
  for (size_t c = 0; c < slots.size(); ++c) {
    SlotClass& made = classes_.emplace_back();
    made.bytes = slot_bytes[c];
    for (int32_t i = 0; i < slots[c]; ++i) made.free.push_back(i);
    made.free_after.resize(static_cast<size_t>(slots[c]));
  }
}

SimSlot SlotPool::Take(int32_t slot_class) {
  SlotClass& of = classes_[static_cast<size_t>(slot_class)];
  CASTOR_CHECK(!of.free.empty());
  SimSlot slot{slot_class, of.free.front(), SimEvent()};
  of.free.pop_front();
  slot.free_after =
      std::exchange(of.free_after[static_cast<size_t>(slot.index)], SimEvent());
  in_use_ += of.bytes;
  peak_ = std::max(peak_, in_use_);
  return slot;
}

void SlotPool::Give(const SimSlot& slot, SimEvent free_after) {
  SlotClass& of = classes_[static_cast<size_t>(slot.slot_class)];
  of.free_after[static_cast<size_t>(slot.index)] = std::move(free_after);
  of.free.push_back(slot.index);
  in_use_ -= of.bytes;
}

}  // namespace castor::internal
