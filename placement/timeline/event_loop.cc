// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/timeline/event_loop.h"

#include <algorithm>
#include <unordered_set>

#include "chunk/base/check.h"

namespace castor::internal {

bool SimEvent::State::IsDone() {
  if (!done && !parts.empty()) {
    done = std::ranges::all_of(parts, &SimEvent::done);
  }
  return done;
}

void SimEvent::OnDone(std::function<void()> callback) const {
  if (state_ == nullptr || state_->done) return callback();
  if (state_->parts.empty()) {
    state_->callbacks.push_back(std::move(callback));
    return;
  }
  const auto left = std::make_shared<size_t>(state_->parts.size());
  for (const SimEvent& part : state_->parts) {
    part.OnDone([left, callback] {
      if (--*left == 0) callback();
    });
  }
}

void SimSource::Complete() const {
  CASTOR_CHECK(!state_->done);
  state_->done = true;
  // A callback may let go of what holds this source.
  const std::vector<std::function<void()>> callbacks =
      std::exchange(state_->callbacks, {});
  for (const std::function<void()>& callback : callbacks) callback();
}

SimEvent AllOf(std::span<const SimEvent> events) {
  std::vector<SimEvent> open;
  std::unordered_set<const SimEvent::State*> seen;
  const auto add = [&](const SimEvent& event) {
    if (event.done() || !seen.insert(event.state_.get()).second) return;
    open.push_back(event);
  };
  for (const SimEvent& event : events) {
    if (event.state_ == nullptr || event.state_->parts.empty()) {
      add(event);
    } else {
      for (const SimEvent& part : event.state_->parts) add(part);
    }
  }
  if (open.empty()) return SimEvent();
  if (open.size() == 1) return open.front();
  auto state = std::make_shared<SimEvent::State>();
  state->parts = std::move(open);
  return SimEvent(std::move(state));
}

SimEvent Both(const SimEvent& a, const SimEvent& b) {
  if (a.done()) return b;
  if (b.done()) return a;
  const SimEvent events[] = {a, b};
  return AllOf(events);
}

void EventLoop::Added() {
  CASTOR_CHECK_GE(timers_.back().due_ns, now_ns_);
  std::push_heap(timers_.begin(), timers_.end(), IsLater);
}

bool EventLoop::RunOne() {
  if (!tasks_.empty()) {
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
    return true;
  }
  while (!timers_.empty()) {
    std::pop_heap(timers_.begin(), timers_.end(), IsLater);
    const Timer timer = std::move(timers_.back());
    timers_.pop_back();
    if (timer.version != nullptr && *timer.version != timer.of_version) {
      continue;
    }
    now_ns_ = timer.due_ns;
    timer.task();
    return true;
  }
  return false;
}

void EventLoop::RunUntil(const SimEvent& event) {
  while (!event.done()) {
    const bool ran = RunOne();
    CASTOR_CHECK(ran);
  }
}

void EventLoop::RunAll() {
  while (RunOne()) {
  }
}

}  // namespace castor::internal
