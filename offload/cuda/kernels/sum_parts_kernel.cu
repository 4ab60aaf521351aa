// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The sum of what several ranks sent, in rank order.

#include <cstdint>
#include <type_traits>

#include "offload/cuda/kernels/kernel_support.cuh"
#include "offload/cuda/kernels/kernels.h"

namespace castor {
namespace {

// Where part `index` begins.
template <typename T>
__device__ const T* PartAt(const CudaParts& parts, int index) {
  if (index == parts.own_index) return static_cast<const T*>(parts.own);
  const int slot = index < parts.own_index ? index : index - 1;
  return static_cast<const T*>(parts.others) + slot * parts.stride;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    SumElements(CudaParts parts, T* to, int64_t count, int64_t packs) {
  for (int64_t i = FirstOfThread(); i < packs; i += StepOfThreads()) {
    const auto first = reinterpret_cast<const Pack<T>*>(PartAt<T>(parts, 0))[i];
    Pack<float> sum;
    for (int j = 0; j < kPack; ++j) sum.at[j] = ToFloat(first.at[j]);
    for (int p = 1; p < parts.parts; ++p) {
      const auto more =
          reinterpret_cast<const Pack<T>*>(PartAt<T>(parts, p))[i];
      for (int j = 0; j < kPack; ++j) sum.at[j] += ToFloat(more.at[j]);
    }
    Pack<T> out;
    for (int j = 0; j < kPack; ++j) Store(sum.at[j], &out.at[j]);
    reinterpret_cast<Pack<T>*>(to)[i] = out;
  }
  for (int64_t i = packs * kPack + FirstOfThread(); i < count;
       i += StepOfThreads()) {
    float sum = ToFloat(PartAt<T>(parts, 0)[i]);
    for (int p = 1; p < parts.parts; ++p)
      sum += ToFloat(PartAt<T>(parts, p)[i]);
    Store(sum, &to[i]);
  }
}

}  // namespace

int LaunchSumParts(CudaStream stream, const CudaParts& parts, DType dtype,
                   int64_t count, void* to) {
  return WithElementType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    auto* const typed_to = static_cast<T*>(to);
    const bool packed = IsAligned(typed_to) &&
                        IsAligned(static_cast<const T*>(parts.own)) &&
                        IsAligned(static_cast<const T*>(parts.others)) &&
                        parts.stride % kPack == 0;
    return Launch<SumElements<T>>(count, kThreads * kPack, stream, parts,
                                  typed_to, count, packed ? count / kPack : 0);
  });
}

}  // namespace castor
