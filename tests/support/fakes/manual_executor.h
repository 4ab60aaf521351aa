// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_MANUAL_EXECUTOR_H_
#define CASTOR_TESTS_SUPPORT_FAKES_MANUAL_EXECUTOR_H_

// An executor that a test cranks by hand: posted tasks pile up until the test
// runs them, on its own thread, in an order of its choice. So a race becomes a
// plain sequence of calls. Thread-safe; tasks run on whoever cranks.

#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

#include "offload/lanes/executor.h"

namespace castor {

class ManualExecutor final : public Executor {
 public:
  void Post(Task task) override {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }

  size_t pending() const {
    std::lock_guard lock(mutex_);
    return tasks_.size();
  }

  // Runs the task that was posted first, or the one that `index` others were
  // posted before. False when there is no such task.
  bool RunOne(size_t index = 0) {
    Task task;
    {
      std::lock_guard lock(mutex_);
      if (index >= tasks_.size()) return false;
      task = std::move(tasks_[index]);
      tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(index));
    }
    task();
    return true;
  }

  // Runs tasks, first in first out, those they post included, until none is
  // left. Returns how many ran.
  size_t RunAll() {
    size_t ran = 0;
    while (RunOne()) ++ran;
    return ran;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Task> tasks_;  // guarded by mutex_
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_MANUAL_EXECUTOR_H_
