// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_event_watcher.h"

#include <sys/prctl.h>

#include <chrono>
#include <iterator>
#include <utility>

#include "offload/cuda/cuda_event.h"
#include "offload/lanes/start_thread.h"

namespace castor {
namespace {

// Between two rounds of questions, each of which costs about a microsecond. A
// copy of the smallest chunk takes longer than this.
constexpr std::chrono::microseconds kPause(20);

}  // namespace

CudaEventWatcher::CudaEventWatcher(Thread thread) {
  if (thread == Thread::kOwn) thread_ = StartThread([this] { Work(); });
}

CudaEventWatcher::~CudaEventWatcher() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
    return;
  }
  while (Poll() > 0) std::this_thread::sleep_for(kPause);
}

void CudaEventWatcher::Watch(std::shared_ptr<CudaEventState> event) {
  std::lock_guard lock(mutex_);
  added_.push_back(std::move(event));
  changed_.notify_all();
}

void CudaEventWatcher::Post(Executor::Task task) {
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

bool CudaEventWatcher::BySequence::operator()(
    const std::shared_ptr<CudaEventState>& a,
    const std::shared_ptr<CudaEventState>& b) const {
  return a->sequence() < b->sequence();
}

size_t CudaEventWatcher::Poll() {
  std::vector<Executor::Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    for (auto& event : added_) watched_[event->lane()].insert(event);
    added_.clear();
  }
  for (Executor::Task& task : tasks) task();
  size_t left = 0;
  for (auto lane = watched_.begin(); lane != watched_.end();) {
    OfLane& events = lane->second;
    while (!events.empty() && (*events.begin())->Serve()) {
      events.erase(events.begin());
    }
    left += events.size();
    lane = events.empty() ? watched_.erase(lane) : std::next(lane);
  }
  std::lock_guard lock(mutex_);
  return left + added_.size() + tasks_.size();
}

void CudaEventWatcher::Work() {
  // Pauses are shorter than the 50 us by which Linux is late otherwise.
  ::prctl(PR_SET_TIMERSLACK, 1);
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto has_work = [this] { return !added_.empty() || !tasks_.empty(); };
    changed_.wait(lock, [&] { return stopping_ || has_work(); });
    if (!has_work()) return;
    lock.unlock();
    while (Poll() > 0) {
      lock.lock();
      // What is new is not made to wait.
      changed_.wait_for(lock, kPause, has_work);
      lock.unlock();
    }
    lock.lock();
  }
}

}  // namespace castor
