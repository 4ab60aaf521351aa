// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/timer.h"

#include <sys/prctl.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "offload/lanes/start_thread.h"
#include "offload/lanes/timer_queue.h"

namespace castor {
namespace {

std::chrono::steady_clock::time_point AsTimePoint(int64_t ns) {
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::nanoseconds(ns)));
}

}  // namespace

struct SteadyTimer::Impl {
  // noexcept: a task that throws has no one to tell.
  void Run() noexcept {
    // The kernel rounds sleeps up by 50 us so that it wakes seldom. That would
    // be half of a short copy. Where it is refused, tasks are that much later.
    ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    std::unique_lock lock(mutex);
    for (;;) {
      if (tasks.empty()) {
        if (stopping) return;
        changed.wait(lock);
        continue;
      }
      const int64_t due = tasks.next_due_ns();
      if (due > clock.NowNs()) {
        changed.wait_until(lock, AsTimePoint(due));
        continue;
      }
      Task task = tasks.PopNext();
      lock.unlock();
      task();
      task = nullptr;  // what it held goes before the next wait, unlocked
      lock.lock();
    }
  }

  const SteadyClock clock;
  std::mutex mutex;
  std::condition_variable changed;
  internal::TimerQueue tasks;  // guarded by mutex
  bool stopping = false;       // guarded by mutex
  std::thread thread;
};

SteadyTimer::SteadyTimer() : impl_(std::make_unique<Impl>()) {
  impl_->thread = StartThread([impl = impl_.get()] { impl->Run(); });
}

SteadyTimer::~SteadyTimer() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    impl_->changed.notify_all();
  }
  impl_->thread.join();
}

int64_t SteadyTimer::NowNs() const { return impl_->clock.NowNs(); }

void SteadyTimer::At(int64_t due_ns, Task task) {
  std::lock_guard lock(impl_->mutex);
  const bool is_next =
      impl_->tasks.empty() || due_ns < impl_->tasks.next_due_ns();
  impl_->tasks.Add(due_ns, std::move(task));
  // Under the lock: once it is released the task may run, and what it finishes
  // may be all that kept the timer alive.
  if (is_next) impl_->changed.notify_one();
}

}  // namespace castor
