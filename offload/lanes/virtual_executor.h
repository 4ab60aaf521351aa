// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_VIRTUAL_EXECUTOR_H_
#define CASTOR_OFFLOAD_LANES_VIRTUAL_EXECUTOR_H_

// A world whose time is counted and not waited for: an executor, and the clock
// and timer of what runs on it. Tasks take no time of this clock; when none is
// left, the clock jumps to the next timer that is due (discrete-event
// simulation). One thread runs tasks and timers, first in first out, so what
// they do is the same every time.
//
// That leaves the threads that post. A Participant takes turns with the
// executor: while the participant works the executor stands still, and it runs
// while every participant waits for an Event. With one participant, or with
// several that post nothing but what others' events decide, the whole run and
// every time in it is exact and repeatable. A thread that is no participant may
// post at any time, and finds that time has jumped.
//
// Work that ends elsewhere (a drive, a thread of somebody's own) takes machine
// time, which this clock does not see. Thread-safe. Part of the timers
// (timer.h).

#include <cstdint>
#include <memory>

#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"

namespace castor {

class VirtualExecutor final : public Executor, public Timer {
 public:
  // The clock starts at zero.
  VirtualExecutor();
  // Runs every task and every timer, then joins. REQUIRES: no participant.
  ~VirtualExecutor() override;
  VirtualExecutor(const VirtualExecutor&) = delete;
  VirtualExecutor& operator=(const VirtualExecutor&) = delete;

  void Post(Executor::Task task) override;
  int64_t NowNs() const override;
  void At(int64_t due_ns, Timer::Task task) override;

 private:
  friend class VirtualParticipant;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// While one lives, the thread that made it takes turns with the executor and
// with other participants: one of them all runs at a time, in the order in
// which what they waited for was done. The thread must not block other than in
// Event::Wait and what is made of it (Lane::Drain, the end of a WorkerLane).
// Owner thread only, one at a time on a thread.
class VirtualParticipant final : public EventWaiter {
 public:
  // Blocks until it is this thread's turn. `executor` must outlive it.
  explicit VirtualParticipant(VirtualExecutor* executor);
  ~VirtualParticipant() override;
  VirtualParticipant(const VirtualParticipant&) = delete;
  VirtualParticipant& operator=(const VirtualParticipant&) = delete;

  // What Event::Wait does on this thread.
  void WaitFor(const Event& event) override;

 private:
  VirtualExecutor::Impl* const impl_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_LANES_VIRTUAL_EXECUTOR_H_
