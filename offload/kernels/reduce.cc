// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/reduce.h"

#include <array>

#include "chunk/base/check.h"
#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/float16.h"
#include "offload/kernels/numbers/float_mode.h"

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

template <typename T>
HWY_INLINE int64_t ScaleVectors(T* data, int64_t count, float factor) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const auto factors = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    StoreRounded(d, hn::Mul(LoadWidened(d, data + i), factors), data + i);
  }
  return i;
}

int64_t ScaleFloatVectors(float* data, int64_t count, float factor) {
  return ScaleVectors(data, count, factor);
}

int64_t ScaleBFloat16Vectors(BFloat16* data, int64_t count, float factor) {
  return ScaleVectors(data, count, factor);
}

int64_t ScaleFloat16Vectors(Float16* data, int64_t count, float factor) {
  return ScaleVectors(data, count, factor);
}

int64_t SumFloatVectors(const void* const* sources, int64_t source_count,
                        int64_t count, float* to) {
  return SumVectors(sources, source_count, count, to);
}

int64_t SumBFloat16Vectors(const void* const* sources, int64_t source_count,
                           int64_t count, BFloat16* to) {
  return SumVectors(sources, source_count, count, to);
}

int64_t SumFloat16Vectors(const void* const* sources, int64_t source_count,
                          int64_t count, Float16* to) {
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
HWY_EXPORT(SumFloat16Vectors);
HWY_EXPORT(ScaleFloatVectors);
HWY_EXPORT(ScaleBFloat16Vectors);
HWY_EXPORT(ScaleFloat16Vectors);

float Widened(float value) { return value; }
float Widened(BFloat16 value) { return BFloat16ToFloat(value.bits); }
float Widened(Float16 value) { return Float16ToFloat(value.bits); }
void Round(float value, float* to) { *to = WithCanonicalNaN(value); }
void Round(float value, BFloat16* to) { to->bits = FloatToBFloat16(value); }
void Round(float value, Float16* to) { to->bits = FloatToFloat16(value); }

// The elements from `i` on, which no vector reached.
template <typename T>
void SumRest(std::span<const void* const> sources, int64_t i, int64_t count,
             T* to) {
  for (; i < count; ++i) {
    float sum = Widened(static_cast<const T*>(sources[0])[i]);
    for (const void* source : sources.subspan(1)) {
      sum += Widened(static_cast<const T*>(source)[i]);
    }
    Round(sum, to + i);
  }
}

template <typename T>
void ScaleRest(T* data, int64_t i, int64_t count, float factor) {
  for (; i < count; ++i) Round(Widened(data[i]) * factor, data + i);
}

}  // namespace

void Scale(void* data, DType dtype, int64_t count, float factor) {
  const DefaultFloatMode mode;
  if (dtype == DType::kF32) {
    auto* const full = static_cast<float*>(data);
    ScaleRest(full,
              HWY_DYNAMIC_DISPATCH(ScaleFloatVectors)(full, count, factor),
              count, factor);
  } else if (dtype == DType::kF16) {
    auto* const low = static_cast<Float16*>(data);
    ScaleRest(low,
              HWY_DYNAMIC_DISPATCH(ScaleFloat16Vectors)(low, count, factor),
              count, factor);
  } else {
    CASTOR_CHECK(dtype == DType::kBF16);
    auto* const low = static_cast<BFloat16*>(data);
    ScaleRest(low,
              HWY_DYNAMIC_DISPATCH(ScaleBFloat16Vectors)(low, count, factor),
              count, factor);
  }
}

void SumInOrder(std::span<const void* const> sources, DType dtype,
                int64_t count, void* to) {
  CASTOR_CHECK(!sources.empty());
  const DefaultFloatMode mode;
  const void* const* const from = sources.data();
  const int64_t source_count = std::ssize(sources);
  if (dtype == DType::kF32) {
    auto* const full = static_cast<float*>(to);
    SumRest(
        sources,
        HWY_DYNAMIC_DISPATCH(SumFloatVectors)(from, source_count, count, full),
        count, full);
  } else if (dtype == DType::kF16) {
    auto* const low = static_cast<Float16*>(to);
    SumRest(
        sources,
        HWY_DYNAMIC_DISPATCH(SumFloat16Vectors)(from, source_count, count, low),
        count, low);
  } else {
    CASTOR_CHECK(dtype == DType::kBF16);
    auto* const low = static_cast<BFloat16*>(to);
    SumRest(sources,
            HWY_DYNAMIC_DISPATCH(SumBFloat16Vectors)(from, source_count, count,
                                                     low),
            count, low);
  }
}

void AddInto(void* total, const void* part, DType dtype, int64_t count) {
  const std::array<const void*, 2> sources = {total, part};
  SumInOrder(sources, dtype, count, total);
}

}  // namespace castor

#endif  // HWY_ONCE
