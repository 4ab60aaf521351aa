// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/event.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/lanes/event_access.h"
#include "offload/lanes/event_state.h"

namespace castor {
namespace internal {

// Completed by a thread of this process. One block of memory: a step makes some
// dozen of them for each chunk, and most get one callback.
class HostEventState final : public EventState {
 public:
  HostEventState() : EventState(nullptr) {}

  // Ends the event. noexcept: a callback that throws ends the process here,
  // where the stack still shows it, rather than leave other waiters behind.
  void Complete(Status how) noexcept {
    Callback first;
    std::vector<Callback> more;
    {
      std::lock_guard lock(mutex_);
      const bool done = known_done();
      CASTOR_CHECK(!done);
      SetDone(std::move(how));
      first = std::move(first_);
      more.swap(more_);
    }
    // Outside the lock: a callback may ask this very event.
    if (first) first(status());
    for (Callback& callback : more) callback(status());
  }

  void Wait() override {
    struct Waiter {
      std::mutex mutex;
      std::condition_variable completed;
      bool done = false;
    } waiter;
    OnDone([&waiter](const Status&) {
      // Under the lock, for the waiter goes with its thread's next step.
      std::lock_guard lock(waiter.mutex);
      waiter.done = true;
      waiter.completed.notify_all();
    });
    std::unique_lock lock(waiter.mutex);
    waiter.completed.wait(lock, [&waiter] { return waiter.done; });
  }

  void OnDone(Callback callback) override {
    if (!known_done()) {
      std::lock_guard lock(mutex_);
      if (!known_done()) {
        if (!first_) {
          first_ = std::move(callback);
        } else {
          more_.push_back(std::move(callback));
        }
        return;
      }
    }
    callback(status());
  }

  void AddSource() { sources_.fetch_add(1, std::memory_order_relaxed); }
  // The last one to go completes the event, if nobody did.
  void DropSource() {
    if (sources_.fetch_sub(1, std::memory_order_acq_rel) > 1 || known_done()) {
      return;
    }
    Complete(
        Internal("the last holder of an event went away without completing "
                 "it: what it stood for was dropped; this is a defect of the "
                 "code that held the EventSource"));
  }

 private:
  bool Poll() override { return false; }

  std::atomic<int> sources_ = 1;
  std::mutex mutex_;
  // Guarded by mutex_; both empty once done.
  Callback first_;
  std::vector<Callback> more_;
};

}  // namespace internal

namespace {

using internal::HostEventState;

thread_local EventWaiter* waiter_of_this_thread = nullptr;

// Done when its parts are. Nothing watches the parts until somebody asks to be
// called.
class JoinState final : public internal::EventState,
                        public std::enable_shared_from_this<JoinState> {
 public:
  explicit JoinState(std::vector<Event> parts)
      : EventState(OfParts()), parts_(std::move(parts)) {}

  const std::vector<Event>* parts() const override { return &parts_; }

  void Wait() override {
    for (const Event& part : parts_) part.Wait().IgnoreError();
    Poll();
  }

  void OnDone(Callback callback) override {
    struct Left {
      std::shared_ptr<JoinState> join;
      Callback callback;
      std::atomic<size_t> parts;
    };
    const auto left = std::make_shared<Left>();
    left->join = shared_from_this();
    left->callback = std::move(callback);
    left->parts = parts_.size();
    for (const Event& part : parts_) {
      part.OnDone([left](const Status&) {
        if (left->parts.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
        left->join->Poll();
        left->callback(left->join->status());
      });
    }
  }

 private:
  bool Poll() override {
    Status first;
    for (const Event& part : parts_) {
      if (!part.done()) return false;
      if (first.ok()) first = part.status();
    }
    std::lock_guard lock(mutex_);
    if (!known_done()) SetDone(std::move(first));
    return true;
  }

  const std::vector<Event> parts_;
  std::mutex mutex_;  // of SetDone
};

}  // namespace

Event Event::Failed(Status status) {
  CASTOR_CHECK(!status.ok());
  auto state = std::make_shared<HostEventState>();
  state->Complete(std::move(status));
  return Event(std::move(state));
}

bool Event::StateDone() const { return state_->done(); }

Status Event::StateStatus() const {
  const bool done = state_->done();
  CASTOR_CHECK(done);
  return state_->status();
}

Status Event::WaitForState() const {
  if (!state_->done()) {
    if (waiter_of_this_thread != nullptr) {
      waiter_of_this_thread->WaitFor(*this);
    } else {
      state_->Wait();
    }
  }
  return StateStatus();
}

void Event::SettleState() {
  if (state_->done() && state_->status().ok()) state_ = nullptr;
}

void Event::OnDone(Callback callback) const {
  if (state_ == nullptr) {
    callback(OkStatus());
    return;
  }
  state_->OnDone(std::move(callback));
}

EventSource::EventSource() : state_(std::make_shared<HostEventState>()) {}

EventSource::EventSource(const EventSource& other) : state_(other.state_) {
  if (state_ != nullptr) state_->AddSource();
}

EventSource& EventSource::operator=(EventSource other) noexcept {
  state_.swap(other.state_);
  return *this;
}

EventSource::~EventSource() {
  if (state_ != nullptr) state_->DropSource();
}

Event EventSource::event() const { return Event(state_); }

void EventSource::Complete(Status status) const {
  // Held here: a callback may destroy this very source.
  const std::shared_ptr<HostEventState> state = state_;
  state->Complete(std::move(status));
}

EventWaiter* EventWaiter::Exchange(EventWaiter* waiter) {
  return std::exchange(waiter_of_this_thread, waiter);
}

namespace {

// Events, each once: joins of joins share most of their parts. A single event,
// which is the rule, takes no memory of its own.
class DistinctEvents {
 public:
  void Add(const Event& event) {
    if (events_.empty()) {
      if (only_ == nullptr) {
        only_ = &event;
        return;
      }
      if (Same(*only_, event)) return;
      events_.push_back(*only_);
    } else if (Has(event)) {
      return;
    }
    events_.push_back(event);
  }

  bool empty() const { return only_ == nullptr; }
  // REQUIRES: !empty().
  const Event& first() const { return *only_; }
  // Empty where there is one alone.
  std::vector<Event> TakeSeveral() { return std::move(events_); }

 private:
  // Beyond so many they are looked up by hash.
  static constexpr size_t kFew = 16;

  static const internal::EventState* StateOf(const Event& event) {
    return internal::EventAccess::StateOf(event);
  }
  static bool Same(const Event& a, const Event& b) {
    return StateOf(a) == StateOf(b);
  }
  bool Has(const Event& event) {
    if (events_.size() < kFew) {
      return std::ranges::any_of(
          events_, [&](const Event& each) { return Same(each, event); });
    }
    if (seen_.empty()) {
      for (const Event& each : events_) seen_.insert(StateOf(each));
    }
    return !seen_.insert(StateOf(event)).second;
  }

  const Event* only_ = nullptr;  // the first one
  std::vector<Event> events_;    // all, where there are several
  std::unordered_set<const internal::EventState*> seen_;  // many
};

}  // namespace

Event AllOf(std::span<const Event> events) {
  DistinctEvents relevant;
  bool all_done = true;
  const auto add = [&](const Event& event) {
    if (!event.done()) {
      all_done = false;
    } else if (event.status().ok()) {
      return;
    }
    relevant.Add(event);
  };
  for (const Event& event : events) {
    const std::vector<Event>* const parts =
        event.state_ == nullptr ? nullptr : event.state_->parts();
    if (parts == nullptr) {
      add(event);
    } else {
      for (const Event& part : *parts) add(part);
    }
  }
  if (relevant.empty()) return Event();
  // The first in order decides: later ones may have failed too, and only once
  // all are done is it known which is first.
  std::vector<Event> several = relevant.TakeSeveral();
  if (all_done || several.empty()) return relevant.first();
  return Event(std::make_shared<JoinState>(std::move(several)));
}

}  // namespace castor
