// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANE_H_
#define CASTOR_OFFLOAD_LANE_H_

// A Lane is an ordered queue of work: what a CUDA stream is on a GPU. Public
// headers say Lane where others say stream, and trainers bring their own. Work
// on a lane runs in the order in which it was queued, one at a time; different
// lanes run at the same time unless one waits for the other's Event.
//
// The first failure of a lane sticks: later work is skipped, and events
// recorded later fail with it, so nothing ever computes on bytes that did not
// arrive. A failed lane still waits for the events it was told to wait for: an
// event recorded after them, failed or not, comes after them, so that memory is
// never free while somebody uses it.
//
// What an operation's closure holds is let go before the next operation runs.
// Work that throws ends the process.
//
// Queueing is for one thread at a time (thread-compatible); completions come
// from anywhere.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "chunk/base/unique_function.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"

namespace castor {

class Lane {
 public:
  using Work = UniqueFunction<Status()>;
  // Starts work that ends elsewhere (a collective, a transfer): the lane goes
  // on when the source is completed. The closure itself goes when it returns;
  // a source dropped uncompleted fails the lane.
  using AsyncWork = UniqueFunction<void(EventSource)>;
  // Called once, with the first failure, from whichever thread met it.
  using OnFailure = std::function<void(const Status&)>;

  virtual ~Lane() = default;

  // Later work waits for `event`. Two lanes block their caller where the host
  // takes part in these three: a ThreadLane, and a lane over a trainer's CUDA
  // stream (offload/cuda/cuda_lane.h).
  virtual void Wait(const Event& event) = 0;
  virtual void Run(Work work) = 0;
  virtual void RunAsync(AsyncWork work) = 0;
  // Tells `note` the time on `clock` at which the lane got here, once, on any
  // thread: at once where runs_on_host(), else at the latest when
  // Device::FinishTimes returns. Nothing waits for it. Does not come where the
  // lane or its device has failed.
  using TimeNote = UniqueFunction<void(int64_t ns)>;
  virtual void NoteTime(const Clock* clock, TimeNote note);
  // Whether threads of the process run what is queued.
  virtual bool runs_on_host() const { return true; }
  // An event that is done when everything queued so far has run.
  virtual Event Record() = 0;
  // The first failure so far; ok while there is none.
  virtual Status status() const = 0;
  // FailedPrecondition while the lane's stream is being captured: work that is
  // queued then fails the lane for good.
  virtual Status CheckTakesWork() { return OkStatus(); }
  virtual const std::string& name() const = 0;

  // Blocks until everything queued so far has run; returns status().
  Status Drain();
};

// A lane served by an executor: not a thread, so any number of them run on two
// cores. While it waits for an event it holds no thread of the executor.
class WorkerLane final : public Lane {
 public:
  // `executor` must outlive the lane. `on_failure` runs on the executor, before
  // any event recorded after the failure completes.
  WorkerLane(std::string name, Executor* executor, OnFailure on_failure = {});
  // Waits for what was queued. REQUIRES: the calling thread is not one on which
  // that has still to run (a thread of the executor), and every event the lane
  // waits for completes without this thread's help.
  ~WorkerLane() override;
  WorkerLane(const WorkerLane&) = delete;
  WorkerLane& operator=(const WorkerLane&) = delete;

  void Wait(const Event& event) override;
  void Run(Work work) override;
  void RunAsync(AsyncWork work) override;
  void NoteTime(const Clock* clock, TimeNote note) override;
  Event Record() override;
  Status status() const override;
  const std::string& name() const override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// The lane of a trainer that computes on its own thread: work runs at once, on
// the caller, and Wait and RunAsync block it until the event is done.
class ThreadLane final : public Lane {
 public:
  explicit ThreadLane(std::string name, OnFailure on_failure = {});

  void Wait(const Event& event) override;
  void Run(Work work) override;
  void RunAsync(AsyncWork work) override;
  Event Record() override;
  Status status() const override { return status_; }
  const std::string& name() const override { return name_; }

 private:
  // Keeps the first failure.
  void Absorb(const Status& status);

  std::string name_;
  OnFailure on_failure_;
  Status status_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_LANE_H_
