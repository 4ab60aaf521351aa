// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_EVENT_STATE_H_
#define CASTOR_OFFLOAD_LANES_EVENT_STATE_H_

// What stands behind an Event: a point that a thread of this process completes
// (EventSource), or a native one that hardware reaches on its own and that is
// found done by asking. A lane of the same hardware waits for a native one
// without the host, hence device(). A join of several events is asked for too,
// and a lane waits for its parts one after another. Thread-safe.

#include <atomic>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/unique_function.h"

namespace castor {

class Event;

namespace internal {

class EventState {
 public:
  using Callback = UniqueFunction<void(const Status&)>;

  EventState(const EventState&) = delete;
  EventState& operator=(const EventState&) = delete;
  virtual ~EventState() = default;

  // One atomic load, and for a native event that is not known to be done a
  // question to the hardware.
  bool done() { return known_done() || (asks_ && Poll()); }
  // REQUIRES: done().
  const Status& status() const { return status_; }

  // As Event::Wait and Event::OnDone.
  virtual void Wait() = 0;
  virtual void OnDone(Callback callback) = 0;

  // Whose native event this is: an address that tells devices apart, null for
  // one that the host completes.
  const void* device() const { return device_; }
  // The events of a join, none of which is a join; null for other events.
  virtual const std::vector<Event>* parts() const { return nullptr; }

 protected:
  explicit EventState(const void* device)
      : device_(device), asks_(device != nullptr) {}
  // A join.
  struct OfParts {};
  explicit EventState(OfParts) : device_(nullptr), asks_(true) {}

  // Asks the hardware, or the parts, and ends the event where they are done.
  // Runs no callback.
  virtual bool Poll() = 0;

  bool known_done() const { return done_.load(std::memory_order_acquire); }
  // Once, under whatever lock the implementation has.
  void SetDone(Status how) {
    status_ = std::move(how);
    done_.store(true, std::memory_order_release);
  }

 private:
  const void* const device_;
  const bool asks_;
  Status status_;  // written once, before done_
  std::atomic<bool> done_ = false;
};

}  // namespace internal
}  // namespace castor

#endif  // CASTOR_OFFLOAD_LANES_EVENT_STATE_H_
