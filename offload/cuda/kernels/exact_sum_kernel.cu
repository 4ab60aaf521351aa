// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The exact sum of squares (offload/kernels/exact_sum.h). A team of threads
// takes a block of 64 elements, each thread one of its eight lanes, or two
// where both are one memory access of four bytes. The lanes are folded in the
// fixed tree, by exchanges between threads. The team's first thread adds the
// block's sum to digits of its own in shared memory, with no other thread's
// interference; at the end those of the thread block are added up, and to the
// total by integer atomics, whose order changes nothing.

#include <cstdint>
#include <type_traits>

#include "offload/cuda/kernels/kernel_support.cuh"
#include "offload/cuda/kernels/kernels.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/numbers/exact_digits.h"

namespace castor {
namespace {

constexpr int kBlock = 64;
constexpr int kLanes = 8;
constexpr int kWords = ExactSum::kWords;
constexpr unsigned kWholeWarp = 0xFFFFFFFF;

template <int kOfThread>  // lanes
constexpr int kTeams = kThreads* kOfThread / kLanes;

template <typename T, int kOfThread>
struct alignas(kOfThread * sizeof(T)) Lanes {
  T at[kOfThread];
};

template <typename T, int kOfThread>
__global__ void __launch_bounds__(kThreads)
    SumSquares(const T* grad, int64_t count, uint64_t* words) {
  constexpr int kTeams = castor::kTeams<kOfThread>;
  constexpr int kTeam = kLanes / kOfThread;
  __shared__ uint64_t sums[kTeams][kWords];
  for (int i = threadIdx.x; i < kTeams * kWords; i += kThreads) {
    (&sums[0][0])[i] = 0;
  }
  __syncthreads();

  const int team = threadIdx.x / kTeam;
  const int lane = threadIdx.x % kTeam * kOfThread;
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTeams;
  // Every thread makes as many rounds, because all take part in an exchange:
  // beyond the last block there are only zeros.
  const int64_t rounds = (blocks + step - 1) / step;
  int64_t block = static_cast<int64_t>(blockIdx.x) * kTeams + team;
  for (int64_t round = 0; round < rounds; ++round, block += step) {
    const int64_t first = block * kBlock + lane;
    double of_lane[kOfThread] = {};
#pragma unroll
    for (int row = 0; row < kBlock; row += kLanes) {
      const int64_t i = first + row;
      // Zeros in place of what a short block lacks change no sum.
      Lanes<T, kOfThread> elements = {};
      if (i + kOfThread <= count) {
        elements = *reinterpret_cast<const Lanes<T, kOfThread>*>(grad + i);
      } else if (i < count) {
        elements.at[0] = grad[i];
      }
      for (int j = 0; j < kOfThread; ++j) {
        const auto x = static_cast<double>(ToFloat(elements.at[j]));
        of_lane[j] = of_lane[j] + x * x;
      }
    }
    static_assert(kOfThread <= 2);  // also for what is left of a short row
    double sum = of_lane[0];
    if constexpr (kOfThread == 2) sum = sum + of_lane[1];
    for (int threads = 1; threads < kTeam; threads *= 2) {
      sum = sum + __shfl_xor_sync(kWholeWarp, sum, threads);
    }
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
    const auto* const typed = static_cast<const T*>(grad);
    const auto sum = [&]<int kOfThread>() {
      return Launch<SumSquares<T, kOfThread>>(count, kTeams<kOfThread> * kBlock,
                                              stream, typed, count, words);
    };
    if constexpr (sizeof(T) == 2) {
      if (reinterpret_cast<uintptr_t>(typed) % 4 == 0) {
        return sum.template operator()<2>();
      }
    }
    return sum.template operator()<1>();
  });
}

}  // namespace castor
