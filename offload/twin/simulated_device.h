// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_TWIN_SIMULATED_DEVICE_H_
#define CASTOR_OFFLOAD_TWIN_SIMULATED_DEVICE_H_

// The twin of an accelerator: memory of the host with a capacity of its own,
// links of given bandwidth and latency, and the host's kernels in place of the
// device's, which give the same bits. Castor trains on it where there is no
// GPU, and what-if runs and tests use it everywhere.
//
// A link that is not throttled copies at the speed of memcpy. On a throttled
// one the bytes are really copied, and the lane goes on when the modelled time
// is over; a timer ends it, so that no thread of the executor is held. On the
// real clock (SteadyTimer, and a ThreadPool as the executor) a copy takes at
// least what the host's memcpy takes. On a virtual one (VirtualExecutor, as
// both) it takes the modelled time exactly.
//
// Operations may be queued on any lane, a trainer's ThreadLane included.

#include <cstdint>
#include <memory>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"
#include "offload/memory/slab.h"
#include "offload/twin/simulated_link.h"
#include "offload/worker_pool.h"
#include "placement/timeline/wires.h"

namespace castor {

struct SimulatedDeviceOptions {
  std::string name = "simulated device";
  Bytes capacity = {};
  SimulatedLinkModels links = {};
  Executor* executor = nullptr;  // serves the lanes; must outlive the device
  // Must outlive the device. May be null where no link is throttled and Busy is
  // not called.
  Timer* timer = nullptr;
  // What copies and kernels take their time of, in place of `links`, with the
  // host and the drives; must outlive the device. Null: its own links.
  internal::Wires* wires = nullptr;
  // Operations take their time and touch no byte, and memory has no pages until
  // somebody else touches it.
  bool dry = false;
  // Nothing takes time: lanes do all work on the thread that calls.
  bool instant = false;
  // Takes part in optimizer passes; must outlive the device. Null: a pass runs
  // on the thread that serves its lane, alone.
  WorkerPool* workers = nullptr;
  // For tests; must outlive the slabs. Null: the operating system.
  const internal::SlabSystem* system = nullptr;
};

class SimulatedDevice final : public Device {
 public:
  // REQUIRES: capacity >= 0, an executor, a timer where a link is throttled.
  explicit SimulatedDevice(SimulatedDeviceOptions options);
  ~SimulatedDevice() override;
  SimulatedDevice(const SimulatedDevice&) = delete;
  SimulatedDevice& operator=(const SimulatedDevice&) = delete;

  DeviceFacts facts() const override;
  Result<Slab> MakeSlab(Bytes size) override { return MakeSlab(size, {}); }
  Result<Slab> MakeSlab(Bytes size, const SlabComing& coming);
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
  Status status() const override;

  // The lane is busy for `ns` of the timer's time: a trainer's kernel, in runs
  // that ask how long a step would take. REQUIRES: ns >= 0, a timer.
  void Busy(Lane& lane, int64_t ns);

  // What the links carried so far. Kernels and Zero count within the device.
  LinkUse link_use(CopyKind kind) const;

  // The device breaks: once `operations` more operations have begun, the next
  // and all later ones fail with `failure`, as after a fault of the hardware.
  // REQUIRES: !failure.ok(), operations >= 0.
  void InjectFailure(Status failure, int64_t operations = 0);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_TWIN_SIMULATED_DEVICE_H_
