// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "tests/tools/workspace/multiply_add.h"

namespace castor {
namespace {

// (1 + u)(1 - u) is 1 - u^2, which rounds to 1 for u = 2^-13: two roundings
// give 0, a fused multiply-add gives -2^-26.
constexpr float kUlp = 0x1p-13f;

TEST(CudaTest, RunsAKernelWithoutFusingOrReportsThatThereIsNoDevice) {
  int devices = -1;
  const cudaError_t answer = cudaGetDeviceCount(&devices);
  float result = 7.0f;
  const int error = MultiplyAddOnDevice(1 + kUlp, 1 - kUlp, -1.0f, &result);
  if (answer == cudaErrorInsufficientDriver || answer == cudaErrorNoDevice) {
    EXPECT_EQ(error, answer);
    EXPECT_EQ(result, 7.0f);
    return;
  }
  ASSERT_EQ(answer, cudaSuccess) << cudaGetErrorString(answer);
  EXPECT_GT(devices, 0);
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(cudaError_t(error));
  EXPECT_EQ(result, 0.0f);
}

}  // namespace
}  // namespace castor
