// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_runtime_calls.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_calls.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

class CudaRuntimeCallsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (calls_ == nullptr) GTEST_SKIP() << "this build has no CUDA";
  }
  CudaCalls* const calls_ = CudaRuntimeCalls();
};

TEST_F(CudaRuntimeCallsTest, ErrorsHaveTheRuntimesNames) {
  EXPECT_THAT(calls_->ErrorText(kCudaOutOfMemory),
              Says("cudaErrorMemoryAllocation", "(2)"));
  EXPECT_THAT(calls_->ErrorText(kCudaNotReady), Says("cudaErrorNotReady"));
}

TEST_F(CudaRuntimeCallsTest, SaysWhetherThereIsADevice) {
  int count = -1;
  const int error = calls_->GetDeviceCount(&count);
  if (error == kCudaOk) {
    EXPECT_GT(count, 0);
    CudaDeviceProperties properties;
    ASSERT_EQ(calls_->GetProperties(0, &properties), kCudaOk);
    EXPECT_FALSE(properties.name.empty());
    EXPECT_GT(properties.total_bytes, 0);
    EXPECT_GE(properties.numa_node, -1);
  } else {
    EXPECT_TRUE(error == kCudaInsufficientDriver || error == kCudaNoDevice)
        << calls_->ErrorText(error);
  }
}

}  // namespace
}  // namespace castor
