// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_TIMER_QUEUE_H_
#define CASTOR_OFFLOAD_LANES_TIMER_QUEUE_H_

// Tasks by when they are due; those due at the same time in the order of their
// places, which they take as they are added, or before. A task may have a
// version: once it is another, the task is none any more. Thread-compatible.

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
    Add(due_ns, TakePlace(), nullptr, std::move(task));
  }
  uint64_t TakePlace() { return places_++; }
  // Null: of no version. REQUIRES: `version` outlives the task.
  void Add(int64_t due_ns, uint64_t place, const uint64_t* version, Task task) {
    heap_.push_back({due_ns, place, version, version == nullptr ? 0 : *version,
                     std::move(task)});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }

  // Lets go of the tasks in front that are of another version.
  bool empty() {
    while (!heap_.empty() && heap_.front().outdated()) Pop();
    return heap_.empty();
  }

  // REQUIRES, both: !empty().
  int64_t next_due_ns() {
    CASTOR_CHECK(!empty());
    return heap_.front().due_ns;
  }
  Task PopNext() {
    CASTOR_CHECK(!empty());
    return Pop();
  }

 private:
  struct Entry {
    int64_t due_ns;
    uint64_t place;
    const uint64_t* version;
    uint64_t of_version;
    Task task;

    bool outdated() const {
      return version != nullptr && *version != of_version;
    }
  };
  static bool Later(const Entry& a, const Entry& b) {
    return std::pair(a.due_ns, a.place) > std::pair(b.due_ns, b.place);
  }

  Task Pop() {
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    Task task = std::move(heap_.back().task);
    heap_.pop_back();
    return task;
  }

  std::vector<Entry> heap_;  // the next one first
  uint64_t places_ = 0;
};

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_LANES_TIMER_QUEUE_H_
