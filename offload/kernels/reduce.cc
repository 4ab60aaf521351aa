// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/reduce.h"

#include <array>

#include "chunk/base/check.h"
#include "offload/kernels/bfloat16.h"
#include "offload/kernels/float_mode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/kernels/reduce.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "offload/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE int64_t SumVectors(const void* const* sources, int64_t source_count,
                              int64_t count, T* to) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    auto sum = LoadWidened(d, static_cast<const T*>(sources[0]) + i);
    for (int64_t s = 1; s < source_count; ++s) {
      const auto* source = static_cast<const T*>(sources[s]);
      sum = hn::Add(sum, LoadWidened(d, source + i));
    }
    StoreRounded(d, sum, to + i);
  }
  return i;
}

int64_t SumFloatVectors(const void* const* sources, int64_t source_count,
                        int64_t count, float* to) {
  return SumVectors(sources, source_count, count, to);
}

int64_t SumBFloat16Vectors(const void* const* sources, int64_t source_count,
                           int64_t count, uint16_t* to) {
  return SumVectors(sources, source_count, count, to);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace castor {
namespace {

HWY_EXPORT(SumFloatVectors);
HWY_EXPORT(SumBFloat16Vectors);

void SumFloat(std::span<const void* const> sources, int64_t count, float* to) {
  int64_t i = HWY_DYNAMIC_DISPATCH(SumFloatVectors)(
      sources.data(), std::ssize(sources), count, to);
  for (; i < count; ++i) {
    float sum = static_cast<const float*>(sources[0])[i];
    for (const void* source : sources.subspan(1)) {
      sum += static_cast<const float*>(source)[i];
    }
    to[i] = WithCanonicalNaN(sum);
  }
}

void SumBFloat16(std::span<const void* const> sources, int64_t count,
                 uint16_t* to) {
  int64_t i = HWY_DYNAMIC_DISPATCH(SumBFloat16Vectors)(
      sources.data(), std::ssize(sources), count, to);
  for (; i < count; ++i) {
    float sum = BFloat16ToFloat(static_cast<const uint16_t*>(sources[0])[i]);
    for (const void* source : sources.subspan(1)) {
      sum += BFloat16ToFloat(static_cast<const uint16_t*>(source)[i]);
    }
    to[i] = FloatToBFloat16(sum);
  }
}

}  // namespace

void SumInOrder(std::span<const void* const> sources, DType dtype,
                int64_t count, void* to) {
  CASTOR_CHECK(!sources.empty());
  const DefaultFloatMode mode;
  if (dtype == DType::kF32) {
    SumFloat(sources, count, static_cast<float*>(to));
  } else {
    CASTOR_CHECK(dtype == DType::kBF16);
    SumBFloat16(sources, count, static_cast<uint16_t*>(to));
  }
}

void AddInto(void* total, const void* part, DType dtype, int64_t count) {
  const std::array<const void*, 2> sources = {total, part};
  SumInOrder(sources, dtype, count, total);
}

}  // namespace castor

#endif  // HWY_ONCE
