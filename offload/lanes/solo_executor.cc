// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/solo_executor.h"

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"

namespace castor {

SoloExecutor::SoloExecutor() : before_(EventWaiter::Exchange(this)) {}

SoloExecutor::~SoloExecutor() {
  RunAll();
  EventWaiter* const self = EventWaiter::Exchange(before_);
  CASTOR_CHECK(self == this);
}

void SoloExecutor::RunAll() {
  while (RunOne()) {
  }
}

void SoloExecutor::Post(Executor::Task task) {
  tasks_.push_back(std::move(task));
}

void SoloExecutor::At(int64_t due_ns, Timer::Task task) {
  timers_.Add(std::max(due_ns, now_ns_), std::move(task));
}

void SoloExecutor::WaitFor(const Event& event) {
  while (!event.done()) {
    const bool ran = RunOne();
    CASTOR_CHECK(ran);
  }
}

bool SoloExecutor::RunOne() {
  if (!tasks_.empty()) {
    Executor::Task task = tasks_.PopFront();
    task();
    return true;
  }
  if (timers_.empty()) return false;
  now_ns_ = timers_.next_due_ns();
  Timer::Task task = timers_.PopNext();
  task();
  return true;
}

}  // namespace castor
