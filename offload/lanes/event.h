// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_EVENT_H_
#define CASTOR_OFFLOAD_LANES_EVENT_H_

// An Event is a point in somebody's work that others wait for: the end of a
// copy, of a collective, of what a lane had queued. It completes once, with a
// Status; a failure travels to everything that waits. Events are copyable
// handles of shared state; thread-safe. A default-made Event is done and ok and
// costs nothing.
//
// A point in the work of hardware (a CUDA lane's Record) is an Event too: it is
// found done by asking, and its callbacks run on its device's completion
// thread. Part of the lanes (lane.h).

#include <memory>
#include <span>
#include <utility>

#include "chunk/base/status.h"
#include "chunk/base/unique_function.h"

namespace castor {

namespace internal {
class EventState;
class HostEventState;
struct EventAccess;
}  // namespace internal

class Event {
 public:
  using Callback = UniqueFunction<void(const Status&)>;

  Event() = default;
  // An event that is done and failed with `status`. REQUIRES: !status.ok().
  static Event Failed(Status status);

  bool done() const { return state_ == nullptr || StateDone(); }
  // How it ended. REQUIRES: done().
  Status status() const {
    return state_ == nullptr ? OkStatus() : StateStatus();
  }
  // Lets go of what it need not know any more, where it is done and ok: it and
  // its later copies then cost nothing. No answer changes.
  void Settle() {
    if (state_ != nullptr) SettleState();
  }
  // Blocks the calling thread until done, or lets its EventWaiter wait; returns
  // status().
  Status Wait() const {
    return state_ == nullptr ? OkStatus() : WaitForState();
  }
  // Calls `callback` once, under no lock of Castor: now, on this thread, if
  // done; else on the thread that completes the event, which must not be held
  // up for long. Callbacks of one event run in the order in which they came.
  void OnDone(Callback callback) const;

 private:
  friend class EventSource;
  friend Event AllOf(std::span<const Event> events);
  friend struct internal::EventAccess;
  explicit Event(std::shared_ptr<internal::EventState> state)
      : state_(std::move(state)) {}

  bool StateDone() const;
  Status StateStatus() const;
  Status WaitForState() const;
  void SettleState();

  std::shared_ptr<internal::EventState> state_;  // null: done and ok
};

// The side that completes an Event. Copies complete the same event. When the
// last copy is destroyed uncompleted, the event fails with kInternal, so that a
// lost completion is an error and not a hang.
class EventSource {
 public:
  EventSource();
  EventSource(const EventSource& other);
  EventSource(EventSource&& other) noexcept = default;
  EventSource& operator=(EventSource other) noexcept;
  ~EventSource();

  Event event() const;
  // REQUIRES: not completed before.
  void Complete(Status status = OkStatus()) const;

 private:
  std::shared_ptr<internal::HostEventState> state_;  // null: moved from
};

// How a thread waits for events where blocking would hold up what it waits for:
// VirtualExecutor counts time only while its participants wait.
class EventWaiter {
 public:
  virtual ~EventWaiter() = default;
  // Returns when `event` is done.
  virtual void WaitFor(const Event& event) = 0;

  // From now on `waiter` (null: nobody) waits on the calling thread. Returns
  // who did before. The waiter must outlive its office.
  static EventWaiter* Exchange(EventWaiter* waiter);
};

// Done when all of `events` are. The failure is that of the first failed event,
// in the order given. A lane waits for the events one after another.
Event AllOf(std::span<const Event> events);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_LANES_EVENT_H_
