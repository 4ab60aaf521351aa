// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_LANE_CONTROL_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_LANE_CONTROL_H_

// What a CUDA lane and its events say to each other and to the device: where in
// its work the lane failed, and which of its waits for the host are over.
// Everything queued on a lane has a sequence number, counted from 1.
//
// Two words of pinned memory tell the device, for streams that wait for the
// host by themselves (cuda_lane.h). `flag` counts the waits that are over, as
// far as all before them are: the stream waits until it is large enough.
// `poison` is the sequence number at which the lane failed, at first beyond
// all: a kernel with a higher one does nothing. A failure is written before the
// flag that lets the stream reach what it concerns, so every block of a kernel
// reads the same answer.
//
// Thread-safe. Part of the CUDA lanes (cuda_lane.h).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "chunk/base/status.h"
#include "offload/lane.h"

namespace castor {

// A cache line of its own, so that no lane's polling slows another's.
struct alignas(64) CudaControlWords {
  std::atomic<uint64_t> poison = std::numeric_limits<uint64_t>::max();
  std::atomic<uint32_t> flag = 0;
};

class CudaLaneControl {
 public:
  // `words` as the host and as the device see them; freed by `words`' deleter
  // when no event of the lane is left.
  CudaLaneControl(std::shared_ptr<CudaControlWords> words, void* on_device,
                  Lane::OnFailure on_failure)
      : words_(std::move(words)),
        on_device_(on_device),
        on_failure_(std::move(on_failure)) {}

  const uint64_t* poison_on_device() const {
    return static_cast<const uint64_t*>(on_device_);
  }
  void* flag_on_device() const {
    return static_cast<std::byte*>(on_device_) +
           offsetof(CudaControlWords, flag);
  }

  // What has a higher sequence number than `sequence` fails with `status`,
  // unless it does already. Calls on_failure the first time.
  void Fail(uint64_t sequence, const Status& status) {
    {
      std::lock_guard lock(mutex_);
      if (sequence < failed_at_) {
        failed_at_ = sequence;
        earliest_ = status;
        words_->poison.store(sequence, std::memory_order_seq_cst);
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

  // One more wait of the stream for the host, at `sequence`: what the flag must
  // reach.
  uint32_t BeginWait(uint64_t sequence) {
    std::lock_guard lock(mutex_);
    open_waits_[++waits_] = sequence;
    return static_cast<uint32_t>(waits_);
  }
  // It is over, how `status` says. The stream passes it once it has passed all
  // before it.
  void EndWait(uint64_t sequence, const Status& status) {
    if (!status.ok()) Fail(sequence, status);
    std::lock_guard lock(mutex_);
    std::erase_if(open_waits_, [sequence](const auto& wait) {
      return wait.second == sequence;
    });
    const uint64_t passed =
        open_waits_.empty() ? waits_ : open_waits_.begin()->first - 1;
    words_->flag.store(static_cast<uint32_t>(passed),
                       std::memory_order_seq_cst);
  }
  // Whether the stream holds a wait before `sequence` that may still fail.
  bool InDoubt(uint64_t sequence) const {
    std::lock_guard lock(mutex_);
    return !open_waits_.empty() && open_waits_.begin()->second < sequence;
  }

 private:
  const std::shared_ptr<CudaControlWords> words_;
  void* const on_device_;
  const Lane::OnFailure on_failure_;

  std::atomic<bool> failed_ = false;  // written under mutex_, after first_
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  Status first_;
  uint64_t failed_at_ = std::numeric_limits<uint64_t>::max();
  Status earliest_;  // of failed_at_
  uint64_t waits_ = 0;
  std::map<uint64_t, uint64_t> open_waits_;  // their number to their sequence
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_LANE_CONTROL_H_
