// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The device contract on CudaDevice over the fake runtime, whose streams run on
// threads.

#include <memory>
#include <string>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_device.h"
#include "offload/lanes/executor.h"
#include "tests/support/contracts/device_contract.h"
#include "tests/support/fakes/fake_cuda.h"

namespace castor {
namespace {

class FakeUnderTest final : public DeviceUnderTest {
 public:
  explicit FakeUnderTest(FakeCudaOptions options) : cuda_(options) {
    Result<std::unique_ptr<CudaDevice>> opened =
        CudaDevice::Open(&cuda_, {.executor = &executor_, .log = &log_});
    CASTOR_CHECK(opened.ok());
    device_ = *std::move(opened);
  }
  ~FakeUnderTest() override {
    device_ = nullptr;
    EXPECT_EQ(cuda_.live(), FakeCuda::Live());
  }

  Device& device() override { return *device_; }
  bool Break() override {
    cuda_.FailWork("MemcpyAsync", 1, 719);
    return true;
  }

 private:
  FakeCuda cuda_;
  ThreadPool executor_{2};
  Log log_{[](LogLevel, std::string_view) {}};
  std::unique_ptr<CudaDevice> device_;
};

DeviceBackend Fake(std::string name, FakeCudaOptions options) {
  return {std::move(name), [options](std::string*) {
            return std::make_unique<FakeUnderTest>(options);
          }};
}

INSTANTIATE_TEST_SUITE_P(
    FakeCuda, DeviceContract,
    testing::Values(Fake("Plain", {}),
                    Fake("OneHardwareQueue", {.hardware_queues = 1}),
                    Fake("FourHardwareQueues", {.hardware_queues = 4})),
    DeviceBackendName());

}  // namespace
}  // namespace castor
