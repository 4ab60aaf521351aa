// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_event_watcher.h"

#include <chrono>
#include <utility>

#include "offload/cuda/cuda_event.h"
#include "offload/start_thread.h"

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

void CudaEventWatcher::Post(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

size_t CudaEventWatcher::Poll() {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    for (auto& event : added_) watched_.push_back(std::move(event));
    added_.clear();
  }
  for (const std::function<void()>& task : tasks) task();
  std::erase_if(watched_, [](const auto& event) { return event->Serve(); });
  std::lock_guard lock(mutex_);
  return watched_.size() + added_.size() + tasks_.size();
}

void CudaEventWatcher::Work() {
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
