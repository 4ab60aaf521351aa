// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_MANUAL_TIMER_H_
#define CASTOR_TESTS_SUPPORT_FAKES_MANUAL_TIMER_H_

// A timer that a test turns by hand: time stands still between its calls, and
// tasks run on the thread that turns. Thread-safe, but for turning, which is
// for one thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "offload/lanes/timer.h"
#include "offload/lanes/timer_queue.h"

namespace castor {

class ManualTimer final : public Timer {
 public:
  int64_t NowNs() const override {
    std::lock_guard lock(mutex_);
    return now_ns_;
  }

  void At(int64_t due_ns, Task task) override {
    std::lock_guard lock(mutex_);
    ++pending_;
    tasks_.Add(std::max(due_ns, now_ns_), std::move(task));
  }

  size_t pending() const {
    std::lock_guard lock(mutex_);
    return pending_;
  }

  // Goes on to the next task that is due and runs it. False when there is none.
  bool RunNext() { return RunNextUntil(INT64_MAX); }

  // Goes on by `ns`, running what falls due on the way, also what such tasks
  // ask for. REQUIRES: ns >= 0.
  void Advance(int64_t ns) {
    const int64_t until = NowNs() + ns;
    while (RunNextUntil(until)) {
    }
    std::lock_guard lock(mutex_);
    now_ns_ = until;
  }

 private:
  bool RunNextUntil(int64_t last_ns) {
    Task task;
    {
      std::lock_guard lock(mutex_);
      if (tasks_.empty() || tasks_.next_due_ns() > last_ns) return false;
      now_ns_ = tasks_.next_due_ns();
      task = tasks_.PopNext();
      --pending_;
    }
    task();
    return true;
  }

  mutable std::mutex mutex_;
  // All guarded by mutex_.
  internal::TimerQueue tasks_;
  int64_t now_ns_ = 0;
  size_t pending_ = 0;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_MANUAL_TIMER_H_
