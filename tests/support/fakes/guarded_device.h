// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_GUARDED_DEVICE_H_
#define CASTOR_TESTS_SUPPORT_FAKES_GUARDED_DEVICE_H_

// A device whose memory the host cannot touch, whichever device it wraps: the
// addresses that it hands out are mapped without access, and its operations
// find the wrapped device's memory behind them. Who reads or writes there on
// the host ends the process with SIGSEGV. Operations CHECK that their pointers
// are to the memory that they should be to. Thread-safe as Device is.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/memory/slab.h"

namespace castor {

class GuardedDevice final : public Device {
 public:
  // `device` must outlive this one.
  explicit GuardedDevice(Device* device);
  ~GuardedDevice() override;

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
  void FinishTimes() override { device_->FinishTimes(); }
  Status status() const override;

 private:
  struct Memory;  // of all slabs; they may outlive the device

  Device* const device_;
  const std::shared_ptr<Memory> memory_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_GUARDED_DEVICE_H_
