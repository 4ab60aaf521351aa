// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TIMELINE_SIM_LANE_H_
#define CASTOR_PLACEMENT_TIMELINE_SIM_LANE_H_

// A lane of a simulation: work in the order in which it was queued, one at a
// time, as offload/lane.h has it, down to the turns that lanes take on their
// executor, so that what happens at the same time happens in the same order.
// Lanes do not fail. Owner thread only. Part of the event loop (event_loop.h).

#include <cstdint>
#include <deque>
#include <functional>
#include <variant>

#include "placement/timeline/event_loop.h"

namespace castor::internal {

class SimLane {
 public:
  enum class Kind : uint8_t {
    kQueue,   // whoever queues goes on: a stream, a WorkerLane
    kThread,  // whoever queues waits: a ThreadLane
  };
  using Work = std::function<void()>;
  // The lane goes on when the source is completed.
  using AsyncWork = std::function<void(SimSource)>;

  // `loop` outlives the lane, and the lane all that was queued.
  explicit SimLane(EventLoop* loop, Kind kind = Kind::kQueue)
      : loop_(loop), kind_(kind) {}
  SimLane(const SimLane&) = delete;
  SimLane& operator=(const SimLane&) = delete;

  void Wait(const SimEvent& event);
  void Run(Work work);
  void RunAsync(AsyncWork work);
  // Done when everything queued so far has run.
  SimEvent Record();

 private:
  using Operation = std::variant<SimEvent, Work, AsyncWork, SimSource>;

  void Queue(Operation operation);
  void Turn();
  // False where the lane waits now.
  bool Perform(Operation& operation);
  bool Await(const SimEvent& event);

  EventLoop* const loop_;
  const Kind kind_;
  std::deque<Operation> operations_;
  bool idle_ = true;
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_TIMELINE_SIM_LANE_H_
