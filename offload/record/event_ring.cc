// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/event_ring.h"

#include <bit>

#include "chunk/base/check.h"

namespace castor {

EventRing::EventRing(size_t capacity)
    : mask_(capacity - 1), cells_(std::make_unique<Cell[]>(capacity)) {
  CASTOR_CHECK_GE(capacity, size_t{2});
  CASTOR_CHECK(std::has_single_bit(capacity));
  for (size_t i = 0; i < capacity; ++i) {
    cells_[i].ticket.store(i, std::memory_order_relaxed);
  }
}

}  // namespace castor
