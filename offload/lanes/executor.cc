// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/executor.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/lanes/ring_queue.h"
#include "offload/lanes/start_thread.h"

namespace castor {

namespace {

// What threads wait for. Apart from the pool, because who has posted wakes a
// thread unlocked: a task may run before that, and end the pool.
struct Posted {
  std::mutex mutex;
  std::condition_variable changed;
  // Both guarded by mutex.
  internal::RingQueue<Executor::Task> tasks;
  bool stopping = false;
};

}  // namespace

struct ThreadPool::Impl {
  // Runs tasks until told to stop and none is left. noexcept: a task that
  // throws has no one to tell.
  void Work() noexcept {
    std::unique_lock lock(posted->mutex);
    for (;;) {
      posted->changed.wait(
          lock, [this] { return posted->stopping || !posted->tasks.empty(); });
      if (posted->tasks.empty()) return;
      Task task = posted->tasks.PopFront();
      lock.unlock();
      task();
      task = nullptr;  // what it held goes before the next wait, unlocked
      lock.lock();
    }
  }

  void Stop() {
    {
      std::lock_guard lock(posted->mutex);
      posted->stopping = true;
      posted->changed.notify_all();
    }
    for (std::thread& thread : threads) thread.join();
  }

  const std::shared_ptr<Posted> posted = std::make_shared<Posted>();
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
  const std::shared_ptr<Posted> posted = impl_->posted;
  {
    std::lock_guard lock(posted->mutex);
    posted->tasks.push_back(std::move(task));
  }
  // Unlocked: a thread that is woken would only wait for the lock.
  posted->changed.notify_one();
}

}  // namespace castor
