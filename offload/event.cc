// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/event.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "chunk/base/check.h"

namespace castor {

struct Event::State {
  // Ends the event. noexcept: a callback that throws ends the process here,
  // where the stack still shows it, rather than leave other waiters behind.
  void Complete(Status how) noexcept {
    std::vector<Callback> to_call;
    {
      std::lock_guard lock(mutex);
      CASTOR_CHECK(!done.load(std::memory_order_relaxed));
      status = std::move(how);
      done.store(true, std::memory_order_release);
      to_call.swap(callbacks);
      completed.notify_all();
    }
    // Outside the lock: a callback may ask this very event.
    for (const Callback& callback : to_call) callback(status);
  }

  std::mutex mutex;
  std::condition_variable completed;
  std::atomic<bool> done = false;   // written under mutex
  Status status;                    // written once, before done
  std::vector<Callback> callbacks;  // guarded by mutex; empty once done
};

Event Event::Failed(Status status) {
  CASTOR_CHECK(!status.ok());
  auto state = std::make_shared<State>();
  state->Complete(std::move(status));
  return Event(std::move(state));
}

bool Event::done() const {
  return state_ == nullptr || state_->done.load(std::memory_order_acquire);
}

Status Event::status() const {
  CASTOR_CHECK(done());
  return state_ == nullptr ? OkStatus() : state_->status;
}

Status Event::Wait() const {
  if (!done()) {
    std::unique_lock lock(state_->mutex);
    state_->completed.wait(lock, [this] { return done(); });
  }
  return status();
}

void Event::OnDone(Callback callback) const {
  if (!done()) {
    std::lock_guard lock(state_->mutex);
    if (!done()) {
      state_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback(status());
}

struct EventSource::Completer {
  ~Completer() {
    if (state->done.load(std::memory_order_acquire)) return;
    state->Complete(
        Internal("the last holder of an event went away without completing "
                 "it: what it stood for was dropped; this is a defect of the "
                 "code that held the EventSource"));
  }

  std::shared_ptr<Event::State> state = std::make_shared<Event::State>();
};

EventSource::EventSource() : completer_(std::make_shared<Completer>()) {}

Event EventSource::event() const { return Event(completer_->state); }

void EventSource::Complete(Status status) const {
  // Held here: a callback may destroy this very source.
  const std::shared_ptr<Event::State> state = completer_->state;
  state->Complete(std::move(status));
}

Event AllOf(std::span<const Event> events) {
  struct Join {
    std::vector<Event> events;
    std::atomic<size_t> unfinished;
    EventSource source;
  };
  std::vector<Event> relevant;
  bool all_done = true;
  for (const Event& event : events) {
    if (!event.done()) {
      all_done = false;
    } else if (event.status().ok()) {
      continue;
    }
    relevant.push_back(event);
  }
  if (relevant.empty()) return Event();
  // The first in order decides: later ones may have failed too, and only once
  // all are done is it known which is first.
  if (all_done || relevant.size() == 1) return relevant.front();

  auto join = std::make_shared<Join>();
  join->events = std::move(relevant);
  join->unfinished = join->events.size();
  Event all = join->source.event();
  // A copy, because the last callback lets go of join->events.
  const std::vector<Event> to_watch = join->events;
  for (const Event& event : to_watch) {
    event.OnDone([join](const Status&) {
      if (join->unfinished.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
      Status first;
      for (const Event& each : join->events) {
        first = each.status();
        if (!first.ok()) break;
      }
      join->events.clear();
      join->source.Complete(std::move(first));
    });
  }
  return all;
}

}  // namespace castor
