// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_TIMER_QUEUE_H_
#define CASTOR_OFFLOAD_LANES_TIMER_QUEUE_H_

// Tasks by when they are due; those due at the same time in the order in which
// they were added. Thread-compatible.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/unique_function.h"

namespace castor::internal {

class TimerQueue {
 public:
  using Task = UniqueFunction<void()>;

  void Add(int64_t due_ns, Task task) {
    heap_.push_back({due_ns, added_++, std::move(task)});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }

  bool empty() const { return heap_.empty(); }

  // REQUIRES, both: !empty().
  int64_t next_due_ns() const {
    CASTOR_CHECK(!empty());
    return heap_.front().due_ns;
  }
  Task PopNext() {
    CASTOR_CHECK(!empty());
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    Task task = std::move(heap_.back().task);
    heap_.pop_back();
    return task;
  }

 private:
  struct Entry {
    int64_t due_ns;
    uint64_t number;
    Task task;
  };
  static bool Later(const Entry& a, const Entry& b) {
    return std::pair(a.due_ns, a.number) > std::pair(b.due_ns, b.number);
  }

  std::vector<Entry> heap_;  // the next one first
  uint64_t added_ = 0;
};

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_LANES_TIMER_QUEUE_H_
