// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/virtual_executor.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "chunk/base/check.h"
#include "offload/lanes/ring_queue.h"
#include "offload/lanes/start_thread.h"
#include "offload/lanes/timer_queue.h"

namespace castor {

// At any time at most one of these runs: the participant that has the turn, or
// a task or timer on the executor's thread.
struct VirtualExecutor::Impl {
  // noexcept: a task that throws has no one to tell.
  void Run() noexcept {
    std::unique_lock lock(mutex);
    for (;;) {
      if (on_turn != nullptr) {
        changed.wait(lock);
      } else if (!ready.empty()) {
        on_turn = ready.front();
        ready.pop_front();
        changed.notify_all();
      } else if (!tasks.empty()) {
        RunUnlocked(lock, tasks.PopFront());
      } else if (!timers.empty()) {
        now_ns = timers.next_due_ns();
        RunUnlocked(lock, timers.PopNext());
      } else if (stopping) {
        return;
      } else {
        changed.wait(lock);
      }
    }
  }

  static void RunUnlocked(std::unique_lock<std::mutex>& lock,
                          Executor::Task task) {
    lock.unlock();
    task();
    task = nullptr;  // what it held goes before the next wait, unlocked
    lock.lock();
  }

  // The participant gets its turn when those before it have had theirs.
  void MakeReady(const VirtualParticipant* participant) {
    std::lock_guard lock(mutex);
    ready.push_back(participant);
    changed.notify_all();
  }

  void WaitForTurn(const VirtualParticipant* participant) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return on_turn == participant; });
  }

  void EndTurn(const VirtualParticipant* participant) {
    std::lock_guard lock(mutex);
    CASTOR_CHECK(on_turn == participant);
    on_turn = nullptr;
    changed.notify_all();
  }

  std::atomic<int64_t> now_ns = 0;  // written under mutex
  std::mutex mutex;
  std::condition_variable changed;
  // All guarded by mutex.
  internal::RingQueue<Executor::Task> tasks;
  internal::TimerQueue timers;
  const VirtualParticipant* on_turn = nullptr;
  std::deque<const VirtualParticipant*> ready;
  int participants = 0;
  bool stopping = false;
  std::thread thread;
};

VirtualExecutor::VirtualExecutor() : impl_(std::make_unique<Impl>()) {
  impl_->thread = StartThread([impl = impl_.get()] { impl->Run(); });
}

VirtualExecutor::~VirtualExecutor() {
  {
    std::lock_guard lock(impl_->mutex);
    CASTOR_CHECK_EQ(impl_->participants, 0);
    impl_->stopping = true;
    impl_->changed.notify_all();
  }
  impl_->thread.join();
}

void VirtualExecutor::Post(Executor::Task task) {
  std::lock_guard lock(impl_->mutex);
  impl_->tasks.push_back(std::move(task));
  // Under the lock: once it is released the task may run, and what it finishes
  // may be all that kept the executor alive.
  impl_->changed.notify_all();
}

int64_t VirtualExecutor::NowNs() const { return impl_->now_ns; }

void VirtualExecutor::At(int64_t due_ns, Timer::Task task) {
  std::lock_guard lock(impl_->mutex);
  impl_->timers.Add(std::max(due_ns, impl_->now_ns.load()), std::move(task));
  impl_->changed.notify_all();
}

VirtualParticipant::VirtualParticipant(VirtualExecutor* executor)
    : impl_(executor->impl_.get()) {
  EventWaiter* const before = EventWaiter::Exchange(this);
  CASTOR_CHECK(before == nullptr);
  {
    std::lock_guard lock(impl_->mutex);
    ++impl_->participants;
  }
  impl_->MakeReady(this);
  impl_->WaitForTurn(this);
}

VirtualParticipant::~VirtualParticipant() {
  EventWaiter::Exchange(nullptr);
  impl_->EndTurn(this);
  std::lock_guard lock(impl_->mutex);
  --impl_->participants;
}

void VirtualParticipant::WaitFor(const Event& event) {
  // On the thread that completes the event, so that whatever that thread does
  // next finds this participant ready.
  event.OnDone(
      [impl = impl_, self = this](const Status&) { impl->MakeReady(self); });
  impl_->EndTurn(this);
  impl_->WaitForTurn(this);
}

}  // namespace castor
