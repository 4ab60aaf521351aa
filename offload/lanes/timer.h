// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_TIMER_H_
#define CASTOR_OFFLOAD_LANES_TIMER_H_

// A Timer is a clock that calls back. What takes modelled time (a transfer of
// the simulated device) ends in a callback and holds no thread meanwhile. Tests
// turn one by hand (tests/support/fakes/manual_timer.h); VirtualExecutor is one
// whose time is counted. Implementations are thread-safe.

#include <cstdint>
#include <memory>

#include "chunk/base/clock.h"
#include "chunk/base/unique_function.h"

namespace castor {

class Timer : public Clock {
 public:
  using Task = UniqueFunction<void()>;

  // Runs `task` once NowNs() is `due_ns` or later, at once if it is, but never
  // before returning. Tasks run one at a time, those due first first, those due
  // together in the order of the calls; they hold each other up, so they are
  // short and do not block.
  virtual void At(int64_t due_ns, Task task) = 0;
};

// On the machine's monotonic clock, with a thread of its own that sleeps until
// the next task is due.
class SteadyTimer final : public Timer {
 public:
  SteadyTimer();
  // Waits until everything asked for has run, then joins.
  ~SteadyTimer() override;
  SteadyTimer(const SteadyTimer&) = delete;
  SteadyTimer& operator=(const SteadyTimer&) = delete;

  int64_t NowNs() const override;
  void At(int64_t due_ns, Task task) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_LANES_TIMER_H_
