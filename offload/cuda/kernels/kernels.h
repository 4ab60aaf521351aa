// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_KERNELS_KERNELS_H_
#define CASTOR_OFFLOAD_CUDA_KERNELS_KERNELS_H_

// Castor's kernels, launched on a stream of the current device: what the call
// table (cuda_calls.h) binds its operations of the same names to. To the bits
// of the host's kernels (offload/kernels), whatever the launch: multiplies and
// adds are separate (-fmad=false), division and square root are IEEE's,
// denormals are kept. Each launch returns its error. Thread-safe.

#include <cstdint>

#include "chunk/base/dtype.h"
#include "offload/cuda/cuda_calls.h"

namespace castor {

// Loads every kernel that a function below launches, for the current device:
// the error of the first that cannot be. The runtime loads a kernel at its
// first launch otherwise, and may wait for the device to be idle then.
int LoadKernels();

int LaunchConvert(CudaStream stream, const void* from, DType from_dtype,
                  void* to, DType to_dtype, int64_t count);

int LaunchAddInto(CudaStream stream, void* total, const void* part, DType dtype,
                  int64_t count);

int LaunchScale(CudaStream stream, void* data, DType dtype, int64_t count,
                float factor);

int LaunchSumParts(CudaStream stream, const CudaParts& parts, DType dtype,
                   int64_t count, void* to);

int LaunchAddSquares(CudaStream stream, const void* grad, DType dtype,
                     int64_t count, uint64_t* words);

int LaunchOptimize(CudaStream stream, const OptimizerBuffers& buffers,
                   int64_t count, const OptimizerScalars& scalars,
                   float grad_factor);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_KERNELS_KERNELS_H_
