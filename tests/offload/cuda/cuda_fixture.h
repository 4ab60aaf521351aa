// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_CUDA_CUDA_FIXTURE_H_
#define CASTOR_TESTS_OFFLOAD_CUDA_CUDA_FIXTURE_H_

// A CUDA device on the fake runtime of which nothing moves unless the test
// says so: streams, host work and the completion thread are turned by hand.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_device.h"
#include "offload/memory/slab.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/fakes/manual_executor.h"

namespace castor {

class CudaFixture : public testing::Test {
 protected:
  explicit CudaFixture(FakeCudaOptions options = {.threads = false},
                       int ordinal = 0)
      : cuda_(options) {
    Open({.ordinal = ordinal});
  }

  // A device anew, with the fixture's collaborators.
  void Open(CudaDeviceOptions options) {
    device_ = nullptr;
    options.executor = &executor_;
    options.log = &log_;
    options.completion = CudaEventWatcher::Thread::kNone;
    Result<std::unique_ptr<CudaDevice>> opened =
        CudaDevice::Open(&cuda_, options);
    CASTOR_CHECK(opened.ok());
    device_ = *std::move(opened);
  }

  // Everything that can move, until nothing can.
  void Settle() {
    for (int idle = 0; idle < 3; ++idle) {
      if (cuda_.RunAll() > 0) idle = 0;
      if (executor_.RunAll() > 0) idle = 0;
      device_->ServeCallbacks();
    }
  }

  Slab OnDevice(Bytes size) {
    Result<Slab> slab = device_->MakeSlab(size);
    CASTOR_CHECK(slab.ok());
    return *std::move(slab);
  }
  Slab OnHost(Bytes size) {
    Result<Slab> slab = device_->MakeHostSlab(size, {});
    CASTOR_CHECK(slab.ok());
    return *std::move(slab);
  }

  FakeCuda cuda_;
  ManualExecutor executor_;
  std::vector<std::string> said_;
  Log log_{
      [this](LogLevel, std::string_view line) { said_.emplace_back(line); }};
  std::unique_ptr<CudaDevice> device_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_OFFLOAD_CUDA_CUDA_FIXTURE_H_
