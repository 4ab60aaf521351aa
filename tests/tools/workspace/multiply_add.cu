// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cuda_runtime.h>

#include "tests/tools/workspace/multiply_add.h"

namespace castor {
namespace {

__global__ void MultiplyAdd(float a, float b, float c, float* result) {
  *result = a * b + c;
}

}  // namespace

int MultiplyAddOnDevice(float a, float b, float c, float* result) {
  float* on_device = nullptr;
  cudaError_t error = cudaMalloc(&on_device, sizeof(float));
  if (error != cudaSuccess) return error;
  MultiplyAdd<<<1, 1>>>(a, b, c, on_device);
  error = cudaGetLastError();
  if (error == cudaSuccess) {
    error = cudaMemcpy(result, on_device, sizeof(float), cudaMemcpyDefault);
  }
  const cudaError_t freed = cudaFree(on_device);
  return error == cudaSuccess ? freed : error;
}

}  // namespace castor
