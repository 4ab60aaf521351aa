// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_EVENT_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_EVENT_H_

// A point in a CUDA stream, as an Event: what CudaLane::Record returns. It
// holds a cudaEvent_t of its device's pool from its record until it is known
// done. Done, it tells whether its lane had failed before it. Thread-safe. Part
// of the CUDA lanes (cuda_lane.h).

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/cuda/cuda_core.h"
#include "offload/cuda/cuda_lane_control.h"
#include "offload/lanes/event_state.h"
#include "offload/lanes/executor.h"

namespace castor {

class CudaEventState final
    : public internal::EventState,
      public std::enable_shared_from_this<CudaEventState> {
 public:
  // The point after what has lower sequence numbers than `sequence` on the lane
  // of `control`.
  CudaEventState(std::shared_ptr<CudaCore> core,
                 std::shared_ptr<CudaLaneControl> control, uint64_t sequence);
  ~CudaEventState() override;

  // Records it on `stream`. Once. Until then it is not done, and no stream can
  // wait for it.
  void Issue(CudaStream stream);

  enum class StreamWait {
    kQueued,
    kDone,       // nothing was queued: it is known done
    kNotIssued,  // nothing was: no stream can wait for it yet
  };
  // Makes `stream`, of the same device, wait for it. A failure of the call
  // becomes the device's.
  StreamWait MakeStreamWait(CudaStream stream);
  // Blocks, as Event::Wait does, until no more kNotIssued.
  void WaitUntilIssued();
  // How it ends, once no more kNotIssued, unless its lane fails at what comes
  // before it on the device.
  Status StatusSoFar() const { return control_->StatusAt(sequence_); }
  // Calls `task` once it is issued: now, on this thread, or then, on that one.
  void OnIssued(Executor::Task task);

  void Wait() override;
  // Callbacks run on the device's completion thread.
  void OnDone(Callback callback) override;

  // What orders the events of a lane; `lane` is for comparing only.
  const CudaLaneControl* lane() const { return control_.get(); }
  uint64_t sequence() const { return sequence_; }

  // For CudaEventWatcher: runs the callbacks if the event is done. False while
  // it is not.
  bool Serve();

 private:
  bool Poll() override;
  // How the device answered for the event: ends it. `lock` holds mutex_.
  void Resolve(int error, std::string_view call,
               std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<CudaCore> core_;
  const std::shared_ptr<CudaLaneControl> control_;
  const uint64_t sequence_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  CudaEvent event_ = nullptr;  // from Issue until done and nobody blocks in it
  bool issued_ = false;
  int blocked_ = 0;       // threads in EventSynchronize
  bool watched_ = false;  // the watcher has it, and serves the callbacks
  std::vector<Callback> callbacks_;
  std::vector<Executor::Task> on_issued_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_EVENT_H_
