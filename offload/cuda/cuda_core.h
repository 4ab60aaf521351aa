// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_CORE_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_CORE_H_

// What the lanes, events and slabs of one CUDA device share: the call table,
// the device's context, the failure that sticks, the pool of events, the times
// at which streams got somewhere, and who serves callbacks. Held by all of them
// (shared_ptr), so that an event may outlive its device. Thread-safe.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/cuda/cuda_times.h"
#include "offload/lanes/executor.h"

namespace castor {

class CudaEventWatcher;

class CudaCore {
 public:
  // All pointers outlive the core. `context` is the device's, retained for it.
  CudaCore(CudaCalls* calls, int ordinal, CudaContext context, std::string name,
           Executor* executor, CudaEventWatcher* watcher);
  // Destroys the pooled events and releases the context.
  ~CudaCore();
  CudaCore(const CudaCore&) = delete;
  CudaCore& operator=(const CudaCore&) = delete;

  // Makes the device's context the calling thread's current one while it lives,
  // and no other. Calls made in it neither disturb nor fail by a capture of the
  // trainer's (cudaThreadExchangeStreamCaptureMode). Then the thread has what
  // it had, which may be no context.
  class Scope {
   public:
    explicit Scope(const CudaCore& core);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CudaCalls& calls_;
    bool pushed_ = false;
    CudaCaptureMode mode_ = CudaCaptureMode::kRelaxed;  // of before
  };

  // As a Scope that never ends: for a thread of Castor's own that calls another
  // library on the device.
  int MakeCurrent() const;

  CudaCalls& calls() const { return *calls_; }
  int ordinal() const { return ordinal_; }
  // "CUDA device 0 (NVIDIA H100 80GB HBM3)".
  const std::string& name() const { return name_; }
  Executor* executor() const { return executor_; }
  CudaEventWatcher* watcher() const { return watcher_; }

  // Times at which streams got somewhere.
  CudaTimes& times() { return times_; }

  // Ok, or the failure of the device, which `error`, the answer to `call`,
  // becomes where it is the first: later ones follow from it. An error of
  // capture is FailedPrecondition, and leaves the device as it was.
  Status Check(int error, std::string_view call);
  // FailedPrecondition where a CUDA graph is being captured from `stream`.
  Status CheckNotCapturing(CudaStream stream);
  // The text of a failed call that is not the device's failure.
  std::string Describe(int error, std::string_view call) const;
  Status status() const;
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  // An event that nobody uses. Creates one only when the pool is empty.
  int TakeEvent(CudaEvent* event);
  void GiveEvent(CudaEvent event);
  // How often TakeEvent had to create one.
  int64_t events_created() const;

 private:
  CudaCalls* const calls_;
  const int ordinal_;
  const CudaContext context_;
  const std::string name_;
  Executor* const executor_;
  CudaEventWatcher* const watcher_;

  std::atomic<bool> failed_ = false;  // written under mutex_, after failure_
  mutable std::mutex mutex_;
  Status failure_;                 // guarded by mutex_
  std::vector<CudaEvent> events_;  // guarded by mutex_
  int64_t events_created_ = 0;     // guarded by mutex_
  CudaTimes times_{this};
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_CORE_H_
