// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_DEVICE_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_DEVICE_H_

// The Device that is a CUDA GPU. All it knows of CUDA is a call table
// (cuda_calls.h), so that its logic runs in tests on a fake; cuda_lane.h says
// how its lanes wait and what becomes of work behind a failure. Takes no part
// in which device a trainer's threads have current. Thread-safe as Device is.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/cuda/cuda_core.h"
#include "offload/cuda/cuda_event_watcher.h"
#include "offload/cuda/cuda_lane.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "offload/memory/slab.h"

namespace castor {

struct CudaDeviceOptions {
  int ordinal = 0;  // as CUDA counts, after CUDA_VISIBLE_DEVICES
  // Where host work of lanes runs. REQUIRED; outlives the device.
  Executor* executor = nullptr;
  Log* log = nullptr;  // where a fallback is said once; may be null

  // For tests.
  CudaEventWatcher::Thread completion = CudaEventWatcher::Thread::kOwn;
  const internal::SlabSystem* system = nullptr;
};

class CudaDevice final : public Device {
 public:
  // `calls` outlive the device and all events of its lanes. Unavailable, with
  // the reason and the remedy, where there is no driver or no such device.
  // Blocks: it starts the device's context.
  static Result<std::unique_ptr<CudaDevice>> Open(
      CudaCalls* calls, const CudaDeviceOptions& options);
  ~CudaDevice() override;

  DeviceFacts facts() const override;
  Result<Slab> MakeSlab(Bytes size) override;
  Result<Slab> MakeHostSlab(Bytes size, const HostSlabOptions& options,
                            HostSlabFacts* facts = nullptr) override;
  std::unique_ptr<Lane> MakeLane(std::string name,
                                 Lane::OnFailure on_failure = {}) override;
  Result<std::unique_ptr<Lane>> AdoptStream(
      void* stream, std::string name, Lane::OnFailure on_failure = {}) override;

  void Copy(Lane& lane, std::byte* to, const std::byte* from, Bytes size,
            CopyKind kind) override;
  void CopyIf(Lane& lane, std::byte* to, const std::byte* from, Bytes size,
              CopyKind kind, Wanted wanted) override;
  void Fill(Lane& lane, std::byte* to, Bytes size, std::byte value) override;
  void Convert(Lane& lane, const std::byte* from, DType from_dtype,
               std::byte* to, DType to_dtype, Elements count) override;
  void AddInto(Lane& lane, std::byte* total, const std::byte* part, DType dtype,
               Elements count) override;
  void Scale(Lane& lane, std::byte* data, DType dtype, Elements count,
             float factor) override;
  void AddSquares(Lane& lane, const std::byte* grad, DType dtype,
                  Elements count, uint64_t* words) override;
  void Optimize(Lane& lane, const OptimizerBuffers& buffers, Elements count,
                const OptimizerScalars& scalars, float grad_factor) override;
  void Call(Lane& lane, StreamCall call) override;
  void FinishTimes() override { core_->times().Finish(); }
  Status status() const override { return core_->status(); }

  // Binds the calling thread to the device for good: for a thread of Castor's
  // own that calls another library on it.
  Status MakeCurrent();
  // The trainer's own event, as the runtime knows it. Both return once the
  // runtime has taken the call, and InvalidArgument, in its words, where it
  // refuses.
  //
  // Later work of `lane` waits for what `event` was last recorded behind.
  // REQUIRES: `lane` waits for nothing else, so that the call is not held back
  // while the event is recorded anew.
  Status WaitForEvent(Lane& lane, CudaEvent event);
  // Records `event` behind what is queued on `lane`. Blocks while a lane of
  // Castor's own waits for the host.
  Status RecordEvent(Lane& lane, CudaEvent event);
  // How many CUDA events were ever created: constant in steady state.
  int64_t events_created() const { return core_->events_created(); }
  // Does once what the completion thread does, where there is none. Returns how
  // much is left.
  size_t ServeCallbacks() { return watcher_->Poll(); }

 private:
  CudaDevice(CudaCalls* calls, const CudaDeviceOptions& options,
             const CudaDeviceProperties& properties, CudaContext context);

  // Loads the kernels and makes the service stream.
  Status Start();
  // REQUIRES: `lane` is one of this device.
  CudaLane& Own(Lane& lane) const;
  Status ZeroNow(void* data, Bytes size);
  // Queues `make(stream)` and blocks until it has been called; what it
  // returned.
  Status MakeOn(Lane& lane, std::string_view call,
                const std::function<int(CudaStream)>& make);

  const CudaDeviceOptions options_;
  const CudaDeviceProperties properties_;
  std::unique_ptr<CudaEventWatcher> watcher_;
  std::shared_ptr<CudaCore> core_;

  std::mutex service_mutex_;
  CudaStream service_ = nullptr;  // guarded by service_mutex_
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_DEVICE_H_
