// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_SOLO_EXECUTOR_H_
#define CASTOR_OFFLOAD_LANES_SOLO_EXECUTOR_H_

// The world of a VirtualExecutor with one participant, and without a thread:
// tasks and timers run on the participant's own thread while it waits for an
// event. The order and every time are those of the VirtualExecutor. Owner
// thread only. Part of the timers (timer.h).

#include <cstdint>
#include <utility>

#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/ring_queue.h"
#include "offload/lanes/timer.h"
#include "offload/lanes/timer_queue.h"
#include "placement/timeline/wire_clock.h"

namespace castor {

class SoloExecutor final : public Executor,
                           public Timer,
                           public internal::WireClock,
                           private EventWaiter {
 public:
  // The clock starts at zero. From here on the calling thread waits for events
  // by running what they wait for.
  SoloExecutor();
  // Runs every task and every timer.
  ~SoloExecutor() override;
  SoloExecutor(const SoloExecutor&) = delete;
  SoloExecutor& operator=(const SoloExecutor&) = delete;

  void Post(Executor::Task task) override;
  int64_t NowNs() const override { return now_ns_; }
  void At(int64_t due_ns, Timer::Task task) override;
  // Runs every task and every timer, and what these ask for.
  void RunAll();
  uint64_t TakePlace() override { return timers_.TakePlace(); }
  void AtPlace(int64_t due_ns, uint64_t place, const uint64_t* version,
               WireTask task) override {
    timers_.Add(due_ns, place, version, std::move(task));
  }

 private:
  // EventWaiter. REQUIRES: something that was posted completes the event.
  void WaitFor(const Event& event) override;
  // Runs one task, or the next timer; false where there is none.
  bool RunOne();

  EventWaiter* const before_;
  int64_t now_ns_ = 0;
  internal::RingQueue<Executor::Task> tasks_;
  internal::TimerQueue timers_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_LANES_SOLO_EXECUTOR_H_
