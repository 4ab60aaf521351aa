// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_RECORD_EVENT_RING_H_
#define CASTOR_OFFLOAD_RECORD_EVENT_RING_H_

// A bounded queue of run events: any thread pushes, one thread pops. A push
// never waits for a lock, for the popper or for memory; it fails when the ring
// is full.
//
// Each cell carries a ticket that says whose turn it is. Cell i starts with
// ticket i; the push of position p needs ticket p and leaves p + 1, the pop of
// position p needs p + 1 and leaves p + capacity, which is the push of the next
// round:
//
//   ticket   p          p + 1        p + capacity
//            free  ---> filled  ---> free again
//               push          pop
//
// A mutex would do the same; but a recording thread that is descheduled inside
// it would stop all others, and there are more recording threads than cores.
// Part of the record's writer (record_writer.h).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "placement/run_event.h"

namespace castor {

class EventRing {
 public:
  // REQUIRES: `capacity` is a power of two, at least 2. All memory is taken and
  // touched here.
  explicit EventRing(size_t capacity);

  // False when the ring is full. Thread-safe.
  bool Push(const RunEvent& event) {
    uint64_t position = tail_.load(std::memory_order_relaxed);
    while (true) {
      Cell& cell = cells_[position & mask_];
      const uint64_t ticket = cell.ticket.load(std::memory_order_acquire);
      if (ticket == position) {
        if (tail_.compare_exchange_weak(position, position + 1,
                                        std::memory_order_relaxed)) {
          cell.event = event;
          cell.ticket.store(position + 1, std::memory_order_release);
          return true;
        }
      } else if (ticket < position) {
        return false;
      } else {
        position = tail_.load(std::memory_order_relaxed);
      }
    }
  }

  // False when the next event is not there yet. One thread only.
  bool Pop(RunEvent* event) {
    Cell& cell = cells_[head_ & mask_];
    if (cell.ticket.load(std::memory_order_acquire) != head_ + 1) return false;
    *event = cell.event;
    cell.ticket.store(head_ + mask_ + 1, std::memory_order_release);
    ++head_;
    return true;
  }

  size_t capacity() const { return mask_ + 1; }
  // Pushes begun so far. Thread-safe.
  uint64_t pushed() const { return tail_.load(std::memory_order_acquire); }
  // Pops so far. The popping thread only.
  uint64_t popped() const { return head_; }

 private:
  // A cache line each, so that two threads rarely write the same one.
  struct alignas(64) Cell {
    std::atomic<uint64_t> ticket;
    RunEvent event;
  };
  static_assert(sizeof(Cell) == 64);

  const uint64_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<uint64_t> tail_{0};
  alignas(64) uint64_t head_ = 0;  // of the popping thread
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_RECORD_EVENT_RING_H_
