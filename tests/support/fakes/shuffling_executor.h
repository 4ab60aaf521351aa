// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_SHUFFLING_EXECUTOR_H_
#define CASTOR_TESTS_SUPPORT_FAKES_SHUFFLING_EXECUTOR_H_

// A thread pool that holds posted tasks back, by amounts drawn from a seed:
// work that is not ordered by events runs in orders that a first-in-first-out
// pool hardly ever shows. A lane posts its turn when the event before it is
// complete. So copies, collectives and completions of the drive are all late in
// turn, some by much more than others.
//
// Lateness is counted in other tasks, not in time: a task that is due later
// runs after all that fall due before, also those posted meanwhile. So the
// order is a function of the seed and of the order of posts, and a run takes
// hardly longer than without. Thread-safe.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "offload/lanes/executor.h"

namespace castor {

class ShufflingExecutor final : public Executor {
 public:
  // The seed also says how many threads there are (1 to 3), how many tasks are
  // held back and how long: from hardly any to every second one, past a few
  // others or past hundreds.
  explicit ShufflingExecutor(uint64_t seed) : random_(seed) {
    const int threads = 1 + static_cast<int>(Below(3));
    late_one_in_ = uint64_t{2} << Below(4);
    latest_ = uint64_t{4} << (2 * Below(4));
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
  // No task begins while a Hold lives: what its owner posts is still pending
  // when the owner's next call comes, however fast the threads are.
  class [[nodiscard]] Hold {
   public:
    explicit Hold(ShufflingExecutor* executor) : executor_(*executor) {
      std::lock_guard lock(executor_.mutex_);
      ++executor_.holds_;
    }
    ~Hold() {
      std::lock_guard lock(executor_.mutex_);
      --executor_.holds_;
      executor_.changed_.notify_all();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    ShufflingExecutor& executor_;
  };

  ShufflingExecutor(const ShufflingExecutor&) = delete;
  ShufflingExecutor& operator=(const ShufflingExecutor&) = delete;

  void Post(Task task) override {
    std::lock_guard lock(mutex_);
    const uint64_t late = Below(late_one_in_) == 0 ? latest_ : 2;
    tasks_.emplace(std::pair(now_ + Below(late + 1), random_()),
                   std::move(task));
    changed_.notify_one();
  }

 private:
  // Long enough for a thread that is about to post to do so.
  static constexpr std::chrono::microseconds kPatience{30};

  uint64_t Below(uint64_t n) { return random_() % n; }

  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] {
        return holds_ == 0 && (stopping_ || !tasks_.empty());
      });
      if (tasks_.empty()) return;
      // Only tasks that are to be late: perhaps others come before.
      const auto in_time = [this] {
        return stopping_ || (!tasks_.empty() && Due() <= now_);
      };
      if (!in_time()) changed_.wait_for(lock, kPatience, in_time);
      if (tasks_.empty() || holds_ > 0) continue;
      now_ = std::max(now_ + 1, Due());
      Task task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
      lock.unlock();
      task();
      task = nullptr;  // what it held goes before the next wait, unlocked
      lock.lock();
    }
  }

  uint64_t Due() const { return tasks_.begin()->first.first; }

  uint64_t late_one_in_ = 1;
  uint64_t latest_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;  // guarded by mutex_, as all below
  uint64_t now_ = 0;        // counts tasks run, and jumps to what was awaited
  // By when they are due; ties are broken at random.
  std::map<std::pair<uint64_t, uint64_t>, Task> tasks_;
  bool stopping_ = false;
  int holds_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_SHUFFLING_EXECUTOR_H_
