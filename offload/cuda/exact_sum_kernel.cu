// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The exact sum of squares (offload/kernels/exact_sum.h). Eight threads take a
// block of 64 elements, each one of its eight lanes: a row of eight elements is
// one memory access of the eight, and the lanes are folded by exchanges in the
// fixed tree. The first of the eight adds the block's sum to digits of its own
// in shared memory, with no other thread's interference; at the end those of
// the thread block are added up, and to the total by integer atomics, whose
// order changes nothing.

#include <cstdint>
#include <type_traits>

#include "offload/cuda/kernel_support.cuh"
#include "offload/cuda/kernels.h"
#include "offload/kernels/exact_digits.h"
#include "offload/kernels/exact_sum.h"

namespace castor {
namespace {

constexpr int kBlock = 64;
constexpr int kLanes = 8;
constexpr int kTeams = kThreads / kLanes;
constexpr int kWords = ExactSum::kWords;
constexpr unsigned kWholeWarp = 0xFFFFFFFF;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    SumSquares(const T* grad, int64_t count, uint64_t* words) {
  __shared__ uint64_t sums[kTeams][kWords];
  for (int i = threadIdx.x; i < kTeams * kWords; i += kThreads) {
    (&sums[0][0])[i] = 0;
  }
  __syncthreads();

  const int team = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTeams;
  // Every thread makes as many rounds, because all take part in an exchange:
  // beyond the last block there are only zeros.
  const int64_t rounds = (blocks + step - 1) / step;
  int64_t block = static_cast<int64_t>(blockIdx.x) * kTeams + team;
  for (int64_t round = 0; round < rounds; ++round, block += step) {
    const int64_t first = block * kBlock + lane;
    double sum = 0;
#pragma unroll
    for (int row = 0; row < kBlock; row += kLanes) {
      const int64_t i = first + row;
      // Zeros in place of what a short block lacks change no sum.
      const double x = i < count ? static_cast<double>(ToFloat(grad[i])) : 0.0;
      sum = sum + x * x;
    }
    sum = sum + __shfl_xor_sync(kWholeWarp, sum, 1);
    sum = sum + __shfl_xor_sync(kWholeWarp, sum, 2);
    sum = sum + __shfl_xor_sync(kWholeWarp, sum, 4);
    if (lane != 0) continue;
    const ExactAddend addend =
        SplitIntoDigits(static_cast<uint64_t>(__double_as_longlong(sum)));
    if (addend.finite) {
      sums[team][addend.digit] += addend.low;
      sums[team][addend.digit + 1] += addend.middle;
      sums[team][addend.digit + 2] += addend.high;
    } else {
      ++sums[team][ExactSum::kDigits];
    }
  }
  __syncthreads();

  for (int word = threadIdx.x; word < kWords; word += kThreads) {
    unsigned long long total = 0;
    for (int i = 0; i < kTeams; ++i) total += sums[i][word];
    if (total != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(words) + word, total);
    }
  }
}

}  // namespace

int LaunchAddSquares(CudaStream stream, const void* grad, DType dtype,
                     int64_t count, uint64_t* words) {
  return WithElementType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    unsigned blocks = 0;
    const cudaError_t error = ChooseBlocks(count, kTeams * kBlock, &blocks);
    if (error != cudaSuccess) return static_cast<int>(error);
    return Launch<SumSquares<T>>(blocks, stream, static_cast<const T*>(grad),
                                 count, words);
  });
}

}  // namespace castor
