// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/kernels/kernel_support.cuh"
#include "offload/cuda/kernels/kernels.h"

namespace castor {

int LoadKernels() {
  for (const void* kernel : LaunchedKernels()) {
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace castor
