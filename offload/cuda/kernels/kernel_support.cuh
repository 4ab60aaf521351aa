// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_KERNELS_KERNEL_SUPPORT_CUH_
#define CASTOR_OFFLOAD_CUDA_KERNELS_KERNEL_SUPPORT_CUH_

// What the kernels share. Elements are read and written four at a time where
// every buffer is aligned to four of its elements, and one at a time elsewhere:
// the same arithmetic either way. Grids are no larger than what the device runs
// at once, and their threads walk over the rest.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "chunk/base/dtype.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/float16.h"

namespace castor {

constexpr int kThreads = 256;
constexpr int kPack = 4;
constexpr int kDevices = 64;  // of which something is kept

__device__ inline float ToFloat(float value) { return value; }
__device__ inline float ToFloat(BFloat16 value) {
  return BFloat16ToFloat(value.bits);
}
__device__ inline float ToFloat(Float16 value) {
  return Float16ToFloat(value.bits);
}

__device__ inline void Store(float value, float* to) {
  *to = WithCanonicalNaN(value);
}
__device__ inline void Store(float value, BFloat16* to) {
  to->bits = FloatToBFloat16(value);
}
__device__ inline void Store(float value, Float16* to) {
  to->bits = FloatToFloat16(value);
}

template <typename T>
struct alignas(kPack * sizeof(T)) Pack {
  T at[kPack];
};

template <typename T>
bool IsAligned(const T* data) {
  return reinterpret_cast<uintptr_t>(data) % (kPack * sizeof(T)) == 0;
}

__device__ inline int64_t FirstOfThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t StepOfThreads() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// Blocks of `kKernel` that the current device runs at once, in `*blocks`. One
// more would wait for all others, and run alone.
template <auto kKernel>
cudaError_t CountBlocksAtOnce(int64_t* blocks) {
  static std::array<std::atomic<int64_t>, kDevices> known;  // 0: not yet
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const bool keeps = device < kDevices;
  if (keeps && (*blocks = known[device].load()) != 0) return cudaSuccess;
  int processors = 0;
  error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount,
                                 device);
  if (error != cudaSuccess) return error;
  int of_each = 0;
  error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_each, kKernel,
                                                        kThreads, 0);
  if (error != cudaSuccess) return error;
  *blocks = static_cast<int64_t>(processors) * of_each;
  if (keeps) known[device].store(*blocks);
  return cudaSuccess;
}

// Calls `launch` with a null pointer to the type that `dtype` names.
template <typename Launch>
int WithElementType(DType dtype, const Launch& launch) {
  switch (dtype) {
    case DType::kF32:
      return launch(static_cast<float*>(nullptr));
    case DType::kBF16:
      return launch(static_cast<BFloat16*>(nullptr));
    case DType::kF16:
      return launch(static_cast<Float16*>(nullptr));
    default:
      return kCudaInvalidValue;
  }
}

// Every kernel that some Launch is of. Complete before main.
inline std::vector<const void*>& LaunchedKernels() {
  static std::vector<const void*> kernels;
  return kernels;
}

template <auto kKernel>
struct LaunchedKernel {
  static inline const bool kListed = [] {
    LaunchedKernels().push_back(reinterpret_cast<const void*>(kKernel));
    return true;
  }();
};

// Launches `kKernel` with a block for each `per_block` items of `work`, as far
// as blocks run at once; the error is that of this launch and no other.
template <auto kKernel, typename... Arguments>
int Launch(int64_t work, int64_t per_block, CudaStream stream,
           Arguments... arguments) {
  // To take the address is what makes the compiler list the kernel.
  static_cast<void>(&LaunchedKernel<kKernel>::kListed);
  int64_t at_once = 0;
  const cudaError_t error = CountBlocksAtOnce<kKernel>(&at_once);
  if (error != cudaSuccess) return error;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(
      std::clamp<int64_t>((work + per_block - 1) / per_block, 1, at_once)));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelEx(&config, kKernel, arguments...);
}

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_KERNELS_KERNEL_SUPPORT_CUH_
