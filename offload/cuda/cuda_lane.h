// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_LANE_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_LANE_H_

// A Lane over a CUDA stream, Castor's own or the trainer's.
//
//   Record      a native event: the stream reaches it, nobody is woken
//   Wait        for a native event of the same device: on the device, without
//               the host; for an event of the host: see below
//   Run         host work: starts on the device's executor once the stream got
//               there, and the lane waits for it
//
// Waiting for the host (a drive, host work). What comes behind such a wait is
// skipped when the wait fails, and work that a stream holds cannot be taken
// back. So a lane of Castor's own holds that work in a queue of the host. The
// device's completion thread puts the work on the stream when the wait went
// well.
//
// On the trainer's stream nothing can be held, because what the trainer
// launches itself would overtake it. There the caller waits instead. Of a
// lane that holds work back, the caller waits until the event is on its stream.
// An event of the host, and work of Run and RunAsync, has to be done.
//
// No stream ever waits for what is not on its own stream yet. So it does not
// matter how many streams the driver puts on one hardware queue
// (CUDA_DEVICE_MAX_CONNECTIONS: 8 unless set, 1 under Megatron). A queue whose
// first entry waits for an entry behind it would stand still for ever.
//
// A trainer's stream that is captured into a CUDA graph takes no work: what is
// queued then fails the lane (FailedPrecondition), and the device goes on.
//
// Thread-compatible, as every lane.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/cuda/cuda_core.h"
#include "offload/cuda/cuda_lane_control.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"

namespace castor {

struct CudaLaneOptions {
  std::string name;
  CudaStream stream = nullptr;
  // The stream is the trainer's: it holds work that the lane does not know of,
  // and stays when the lane goes.
  bool adopted = false;
  // The device refused a stream: the lane's control has failed already, and
  // the lane only passes on what it waits for.
  bool refused = false;
};

class CudaLane final : public Lane {
 public:
  CudaLane(std::shared_ptr<CudaCore> core,
           std::shared_ptr<CudaLaneControl> control, CudaLaneOptions options);
  // Waits for what was queued, then destroys the stream unless it is adopted.
  ~CudaLane() override;
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  void Wait(const Event& event) override;
  void Run(Work work) override;
  void RunAsync(AsyncWork work) override;
  void NoteTime(const Clock* clock, TimeNote note) override;
  bool runs_on_host() const override { return false; }
  Event Record() override;
  Status status() const override;
  Status CheckTakesWork() override;
  const std::string& name() const override { return options_.name; }

  const CudaCore* core() const { return core_.get(); }

  // Queues one call: `issue(stream)` makes it and returns its error,
  // which fails the lane and the device, or is not called where the lane or the
  // device has failed. `call` names it in the failure and is a literal. Where
  // it returns a Status, that fails the lane alone.
  template <typename Issue>
  void Queue(std::string_view call, Issue issue) {
    if (options_.refused) return;
    const uint64_t sequence = NextSequence();
    if (options_.adopted) {
      Make(call, sequence, issue);
    } else if (BeginIssuing()) {
      Make(call, sequence, issue);
      IssueHeld();
    } else {
      Hold([this, call, sequence, issue = std::move(issue)]() mutable {
        Make(call, sequence, issue);
      });
    }
  }

 private:
  template <typename Issue>
  void Make(std::string_view call, uint64_t sequence, Issue& issue) {
    if (!Ready(sequence)) return;
    const CudaCore::Scope scope(*core_);
    if (IsCaptured(sequence)) return;
    if constexpr (std::is_same_v<decltype(issue(options_.stream)), Status>) {
      const Status status = issue(options_.stream);
      if (!status.ok()) control_->Fail(sequence, status);
    } else {
      const int error = issue(options_.stream);
      if (error != kCudaOk) [[unlikely]] {
        control_->Fail(sequence, core_->Check(error, call));
      }
    }
  }

  uint64_t NextSequence() {
    last_event_ = Event();
    return ++sequence_;
  }
  // False when what has this sequence number is to be skipped.
  bool Ready(uint64_t sequence);
  // Whether the trainer's stream is captured into a graph. What has this
  // sequence number then fails.
  bool IsCaptured(uint64_t sequence);

  // Makes the stream wait for `event`; where that cannot be, a lane of Castor's
  // own stops issuing until it is over.
  void MakeWait(const Event& event, uint64_t sequence);
  // The same on the trainer's stream, and its RunAsync.
  void MakeAdoptedWait(const Event& event, uint64_t sequence);
  void RunHere(AsyncWork work);

  // Work that is held back, and made by one thread at a time, in order. True
  // when the caller may make what it has at once, and then calls IssueHeld.
  bool BeginIssuing();
  void Hold(Executor::Task operation);
  void IssueHeld();
  // Called by what is being made: nothing after it is until `first`, and what
  // Resume is given.
  void Pause();
  void Resume(Executor::Task first);

  const std::shared_ptr<CudaCore> core_;
  const std::shared_ptr<CudaLaneControl> control_;
  const CudaLaneOptions options_;

  // Touched by the thread that queues.
  uint64_t sequence_ = 0;
  Event last_event_;           // recorded after the last operation, if any was
  std::vector<Event> waited_;  // of a refused lane

  std::mutex mutex_;
  std::condition_variable stopped_issuing_;
  // All guarded by mutex_.
  std::deque<Executor::Task> held_;
  bool issuing_ = false;
  bool paused_ = false;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_LANE_H_
