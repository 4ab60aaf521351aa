// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Conversions, additions and scalings, element by element.

#include <cstdint>
#include <type_traits>

#include "offload/cuda/kernels/kernel_support.cuh"
#include "offload/cuda/kernels/kernels.h"

namespace castor {
namespace {

// Widening is exact, payloads of NaN included; what is rounded has one NaN.
template <typename From, typename To>
__device__ void ConvertElement(From from, To* to) {
  if constexpr (std::is_same_v<To, float> && !std::is_same_v<From, float>) {
    *to = ToFloat(from);
  } else {
    Store(ToFloat(from), to);
  }
}

template <typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    ConvertElements(const From* from, To* to, int64_t count, int64_t packs) {
  for (int64_t i = FirstOfThread(); i < packs; i += StepOfThreads()) {
    const auto in = reinterpret_cast<const Pack<From>*>(from)[i];
    Pack<To> out;
    for (int j = 0; j < kPack; ++j) ConvertElement(in.at[j], &out.at[j]);
    reinterpret_cast<Pack<To>*>(to)[i] = out;
  }
  for (int64_t i = packs * kPack + FirstOfThread(); i < count;
       i += StepOfThreads()) {
    ConvertElement(from[i], &to[i]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    AddElements(T* total, const T* part, int64_t count, int64_t packs) {
  for (int64_t i = FirstOfThread(); i < packs; i += StepOfThreads()) {
    auto sum = reinterpret_cast<Pack<T>*>(total)[i];
    const auto more = reinterpret_cast<const Pack<T>*>(part)[i];
    for (int j = 0; j < kPack; ++j) {
      Store(ToFloat(sum.at[j]) + ToFloat(more.at[j]), &sum.at[j]);
    }
    reinterpret_cast<Pack<T>*>(total)[i] = sum;
  }
  for (int64_t i = packs * kPack + FirstOfThread(); i < count;
       i += StepOfThreads()) {
    Store(ToFloat(total[i]) + ToFloat(part[i]), &total[i]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ScaleElements(T* data, int64_t count, float factor, int64_t packs) {
  for (int64_t i = FirstOfThread(); i < packs; i += StepOfThreads()) {
    auto scaled = reinterpret_cast<Pack<T>*>(data)[i];
    for (int j = 0; j < kPack; ++j) {
      Store(ToFloat(scaled.at[j]) * factor, &scaled.at[j]);
    }
    reinterpret_cast<Pack<T>*>(data)[i] = scaled;
  }
  for (int64_t i = packs * kPack + FirstOfThread(); i < count;
       i += StepOfThreads()) {
    Store(ToFloat(data[i]) * factor, &data[i]);
  }
}

template <typename From, typename To>
int ConvertTyped(CudaStream stream, const void* from, void* to, int64_t count) {
  const auto* const typed_from = static_cast<const From*>(from);
  auto* const typed_to = static_cast<To*>(to);
  const bool packed = IsAligned(typed_from) && IsAligned(typed_to);
  return Launch<ConvertElements<From, To>>(count, kThreads * kPack, stream,
                                           typed_from, typed_to, count,
                                           packed ? count / kPack : 0);
}

}  // namespace

int LaunchConvert(CudaStream stream, const void* from, DType from_dtype,
                  void* to, DType to_dtype, int64_t count) {
  if (to_dtype == DType::kF32 && from_dtype != DType::kF32) {
    return WithElementType(from_dtype, [&](auto* type) {
      using From = std::remove_pointer_t<decltype(type)>;
      return ConvertTyped<From, float>(stream, from, to, count);
    });
  }
  return WithElementType(to_dtype, [&](auto* type) {
    using To = std::remove_pointer_t<decltype(type)>;
    return ConvertTyped<float, To>(stream, from, to, count);
  });
}

int LaunchAddInto(CudaStream stream, void* total, const void* part, DType dtype,
                  int64_t count) {
  return WithElementType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    auto* const typed_total = static_cast<T*>(total);
    const auto* const typed_part = static_cast<const T*>(part);
    const bool packed = IsAligned(typed_total) && IsAligned(typed_part);
    return Launch<AddElements<T>>(count, kThreads * kPack, stream, typed_total,
                                  typed_part, count,
                                  packed ? count / kPack : 0);
  });
}

int LaunchScale(CudaStream stream, void* data, DType dtype, int64_t count,
                float factor) {
  return WithElementType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    auto* const typed = static_cast<T*>(data);
    return Launch<ScaleElements<T>>(count, kThreads * kPack, stream, typed,
                                    count, factor,
                                    IsAligned(typed) ? count / kPack : 0);
  });
}

}  // namespace castor
