// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_CORE_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_CORE_H_

// What the lanes, events and slabs of one CUDA device share: the call table,
// the failure that sticks, the pool of events, and who serves callbacks. Held
// by all of them (shared_ptr), so that an event may outlive its device.
// Thread-safe.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/executor.h"

namespace castor {

class CudaEventWatcher;

class CudaCore {
 public:
  // All outlive the core.
  CudaCore(CudaCalls* calls, int ordinal, std::string name, Executor* executor,
           CudaEventWatcher* watcher);
  // Destroys the pooled events.
  ~CudaCore();
  CudaCore(const CudaCore&) = delete;
  CudaCore& operator=(const CudaCore&) = delete;

  // Makes the device the calling thread's current one while it lives, then the
  // trainer's again.
  class Scope {
   public:
    explicit Scope(const CudaCore& core);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CudaCalls& calls_;
    int before_ = -1;  // -1: it was current already
  };

  CudaCalls& calls() const { return *calls_; }
  int ordinal() const { return ordinal_; }
  // "CUDA device 0 (NVIDIA H100 80GB HBM3)".
  const std::string& name() const { return name_; }
  Executor* executor() const { return executor_; }
  CudaEventWatcher* watcher() const { return watcher_; }

  // Whether a stream can wait for a word of memory (cuStreamWaitValue32).
  bool waits_for_flags() const { return waits_for_flags_; }
  // Before the first lane is made.
  void set_waits_for_flags(bool can) { waits_for_flags_ = can; }

  // Ok, or the failure of the device, which `error`, the answer to `call`,
  // becomes where it is the first: later ones follow from it.
  Status Check(int error, std::string_view call);
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
  const std::string name_;
  Executor* const executor_;
  CudaEventWatcher* const watcher_;
  bool waits_for_flags_ = true;

  std::atomic<bool> failed_ = false;  // written under mutex_, after failure_
  mutable std::mutex mutex_;
  Status failure_;                 // guarded by mutex_
  std::vector<CudaEvent> events_;  // guarded by mutex_
  int64_t events_created_ = 0;     // guarded by mutex_
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_CORE_H_
