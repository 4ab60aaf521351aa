// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TIMELINE_EVENT_LOOP_H_
#define CASTOR_PLACEMENT_TIMELINE_EVENT_LOOP_H_

// The clock of a simulation: tasks take none of its time, and when none is left
// it jumps to the next timer that is due (discrete-event simulation). Tasks and
// timers run first in first out, so that the same calls give the same run: the
// order is that of offload/lanes/virtual_executor.h, without its thread. Owner
// thread only.

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace castor::internal {

// Done once, at some time of the loop. A copy is the same event. Value.
class SimEvent {
 public:
  SimEvent() = default;  // one that is done

  bool done() const { return state_ == nullptr || state_->IsDone(); }
  // Calls back when it is done: at once where it is already.
  void OnDone(std::function<void()> callback) const;

 private:
  friend class SimSource;
  friend SimEvent AllOf(std::span<const SimEvent> events);
  struct State {
    bool IsDone();

    bool done = false;
    std::vector<std::function<void()>> callbacks;
    // Of a join, which has no callbacks of its own; no part is a join.
    std::vector<SimEvent> parts;
  };
  explicit SimEvent(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

// Completes one event. Copies complete the same one.
class SimSource {
 public:
  SimSource() : state_(std::make_shared<SimEvent::State>()) {}
  SimEvent event() const { return SimEvent(state_); }
  // Calls back whoever waits, in the order in which they came. REQUIRES: not
  // done.
  void Complete() const;

 private:
  std::shared_ptr<SimEvent::State> state_;
};

// Done when all are. As offload/lanes/event.h's: nothing asks the parts to call
// before somebody asks the join to.
SimEvent AllOf(std::span<const SimEvent> events);
SimEvent Both(const SimEvent& a, const SimEvent& b);

class EventLoop {
 public:
  using Task = std::function<void()>;

  // The clock starts at zero.
  EventLoop() = default;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  int64_t now_ns() const { return now_ns_; }
  // The clock never ends: what would come later comes at its last moment.
  int64_t FromNow(int64_t ns) const { return Later(now_ns_, ns); }
  static int64_t Later(int64_t from_ns, int64_t ns) {
    constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
    return from_ns > kLast - ns ? kLast : from_ns + ns;
  }
  void Post(Task task) { tasks_.push_back(std::move(task)); }

  // A place among the timers that are due at one time: lower ones go first.
  uint64_t TakePlace() { return places_++; }
  // REQUIRES, for all: the time is not over.
  void At(int64_t due_ns, Task task) {
    timers_.push_back({due_ns, TakePlace(), nullptr, 0, std::move(task)});
    Added();
  }
  // Not at all, and without moving the clock, where *version is another by
  // then. REQUIRES: `version` outlives the timer.
  void At(int64_t due_ns, uint64_t place, const uint64_t* version, Task task) {
    timers_.push_back({due_ns, place, version, *version, std::move(task)});
    Added();
  }

  // Runs until the event is done, and no further. REQUIRES: something that was
  // posted makes it so.
  void RunUntil(const SimEvent& event);
  // Until nothing is left.
  void RunAll();

 private:
  struct Timer {
    int64_t due_ns;
    uint64_t place;
    const uint64_t* version;  // null: it is never another
    uint64_t of_version;
    Task task;
  };
  static bool IsLater(const Timer& a, const Timer& b) {
    return std::pair(a.due_ns, a.place) > std::pair(b.due_ns, b.place);
  }

  void Added();
  // Runs one task or timer; false where there is none.
  bool RunOne();

  int64_t now_ns_ = 0;
  uint64_t places_ = 0;
  std::deque<Task> tasks_;
  std::vector<Timer> timers_;  // a heap, the next one first
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_TIMELINE_EVENT_LOOP_H_
