// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_SHUFFLING_EXECUTOR_H_
#define CASTOR_TESTS_SUPPORT_SHUFFLING_EXECUTOR_H_

// A thread pool that runs what was posted in an order drawn from a seed, and
// lets some tasks wait a while first: work that is not ordered by events runs
// in orders that a first-in-first-out pool hardly ever shows. Thread-safe.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "offload/executor.h"

namespace castor {

class ShufflingExecutor final : public Executor {
 public:
  // Every `delay_one_in`-th task on average is delayed, by at most `longest`.
  explicit ShufflingExecutor(
      uint64_t seed, int threads = 3, uint64_t delay_one_in = 8,
      std::chrono::microseconds longest = std::chrono::microseconds(300))
      : delay_one_in_(delay_one_in), longest_(longest), random_(seed) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
  }
  // Runs what was posted and joins.
  ~ShufflingExecutor() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
  }
  ShufflingExecutor(const ShufflingExecutor&) = delete;
  ShufflingExecutor& operator=(const ShufflingExecutor&) = delete;

  void Post(Task task) override {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_one();
  }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::swap(tasks_[random_() % tasks_.size()], tasks_.back());
      Task task = std::move(tasks_.back());
      tasks_.pop_back();
      const bool delayed = random_() % delay_one_in_ == 0;
      const std::chrono::microseconds delay(
          random_() % static_cast<uint64_t>(longest_.count() + 1));
      lock.unlock();
      if (delayed) std::this_thread::sleep_for(delay);
      task();
      task = nullptr;  // what it held goes before the next wait, unlocked
      lock.lock();
    }
  }

  const uint64_t delay_one_in_;
  const std::chrono::microseconds longest_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;   // guarded by mutex_
  std::vector<Task> tasks_;  // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_SHUFFLING_EXECUTOR_H_
