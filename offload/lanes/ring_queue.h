// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_RING_QUEUE_H_
#define CASTOR_OFFLOAD_LANES_RING_QUEUE_H_

// First in, first out, in one block of memory that grows and stays. A deque
// takes and gives back a block for every few elements that pass through it, and
// lanes pass dozens of operations for each chunk and step. Thread-compatible.

#include <cstddef>
#include <memory>
#include <utility>

#include "chunk/base/check.h"

namespace castor::internal {

template <typename T>
class RingQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  void push_back(T value) {
    if (size_ == capacity_) Grow();
    elements_[(first_ + size_++) & (capacity_ - 1)] = std::move(value);
  }

  // REQUIRES: !empty().
  T PopFront() {
    CASTOR_CHECK(!empty());
    T& front = elements_[first_];
    // Nothing of it stays: it may hold what waits for its end.
    T value = std::exchange(front, T());
    first_ = (first_ + 1) & (capacity_ - 1);
    --size_;
    return value;
  }

 private:
  static constexpr size_t kFirstCapacity = 16;  // a power of two, as all are

  void Grow() {
    const size_t capacity = capacity_ == 0 ? kFirstCapacity : 2 * capacity_;
    auto elements = std::make_unique<T[]>(capacity);
    for (size_t i = 0; i < size_; ++i) {
      elements[i] = std::move(elements_[(first_ + i) & (capacity_ - 1)]);
    }
    elements_ = std::move(elements);
    capacity_ = capacity;
    first_ = 0;
  }

  std::unique_ptr<T[]> elements_;
  size_t capacity_ = 0;
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_LANES_RING_QUEUE_H_
