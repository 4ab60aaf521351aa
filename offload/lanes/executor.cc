// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/executor.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/lanes/start_thread.h"

namespace castor {

struct ThreadPool::Impl {
  // Runs tasks until told to stop and none is left. noexcept: a task that
  // throws has no one to tell.
  void Work() noexcept {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || !tasks.empty(); });
      if (tasks.empty()) return;
      Task task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it held goes before the next wait, unlocked
      lock.lock();
    }
  }

  void Stop() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
      changed.notify_all();
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;  // guarded by mutex
  bool stopping = false;   // guarded by mutex
  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  CASTOR_CHECK_GE(threads, 1);
  impl_->threads.reserve(static_cast<size_t>(threads));
  try {
    for (int i = 0; i < threads; ++i) {
      impl_->threads.push_back(
          StartThread([impl = impl_.get()] { impl->Work(); }));
    }
  } catch (const ThreadLimit&) {
    impl_->Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { impl_->Stop(); }

void ThreadPool::Post(Task task) {
  std::lock_guard lock(impl_->mutex);
  impl_->tasks.push_back(std::move(task));
  // Under the lock: once it is released the task may run, and what it finishes
  // may be all that kept the pool alive.
  impl_->changed.notify_one();
}

}  // namespace castor
