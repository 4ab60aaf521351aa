// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_NUMBERS_HOST_DEVICE_H_
#define CASTOR_OFFLOAD_KERNELS_NUMBERS_HOST_DEVICE_H_

// What arithmetic that runs on both sides of a link is written with: plain C++
// that a host compiler and nvcc read alike, and to the same bits. That takes
// -ffp-contract=off and -fmad=false, which the build sets, and no library call:
// nvcc knows none of the standard library's inside a kernel. Division is `/`,
// correctly rounded on both sides. Pure functions, thread-safe. Part of the
// small float types (bfloat16.h).

#include <cstdint>

#if !defined(__CUDA_ARCH__)
#include <bit>
#include <cmath>
#endif

// Before a function that kernels call too.
#if defined(__CUDACC__)
#define CASTOR_HOST_DEVICE __host__ __device__
#else
#define CASTOR_HOST_DEVICE
#endif

namespace castor {

CASTOR_HOST_DEVICE inline uint32_t BitsOfFloat(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<uint32_t>(value);
#endif
}

CASTOR_HOST_DEVICE inline float FloatOfBits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// Correctly rounded.
CASTOR_HOST_DEVICE inline float SquareRoot(float value) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(value);
#else
  return std::sqrt(value);
#endif
}

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_NUMBERS_HOST_DEVICE_H_
