// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_LANE_CONTROL_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_LANE_CONTROL_H_

// Where in its work a CUDA lane failed: what the lane and its events share.
// Everything queued on a lane has a sequence number, counted from 1.
//
// Thread-safe. Part of the CUDA lanes (cuda_lane.h).

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <utility>

#include "chunk/base/status.h"
#include "offload/lane.h"

namespace castor {

class CudaLaneControl {
 public:
  explicit CudaLaneControl(Lane::OnFailure on_failure)
      : on_failure_(std::move(on_failure)) {}

  // What has a higher sequence number than `sequence` fails with `status`,
  // unless it does already. Calls on_failure the first time.
  void Fail(uint64_t sequence, const Status& status) {
    {
      std::lock_guard lock(mutex_);
      if (sequence < failed_at_) {
        failed_at_ = sequence;
        earliest_ = status;
      }
      if (!first_.ok()) return;
      first_ = status;
      failed_.store(true, std::memory_order_release);
    }
    if (on_failure_) on_failure_(status);
  }

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // The first failure in time.
  Status first_failure() const {
    std::lock_guard lock(mutex_);
    return first_;
  }
  // How an event with this sequence number ends.
  Status StatusAt(uint64_t sequence) const {
    if (!failed()) return OkStatus();
    std::lock_guard lock(mutex_);
    return failed_at_ < sequence ? earliest_ : OkStatus();
  }

 private:
  const Lane::OnFailure on_failure_;

  std::atomic<bool> failed_ = false;  // written under mutex_, after first_
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  Status first_;
  uint64_t failed_at_ = std::numeric_limits<uint64_t>::max();
  Status earliest_;  // of failed_at_
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_LANE_CONTROL_H_
