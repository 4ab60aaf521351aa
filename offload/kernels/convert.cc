// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/convert.h"

#include <algorithm>

#include "chunk/base/check.h"
#include "offload/kernels/float16.h"
#include "offload/kernels/float_mode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/kernels/convert.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "offload/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

template <typename From>
HWY_INLINE int64_t WidenVectors(const From* from, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    hn::StoreU(LoadWidened(d, from + i), d, to + i);
  }
  return i;
}

int64_t WidenBFloat16Vectors(const BFloat16* from, int64_t count, float* to) {
  return WidenVectors(from, count, to);
}

int64_t WidenFloat16Vectors(const Float16* from, int64_t count, float* to) {
  return WidenVectors(from, count, to);
}

template <typename To>
HWY_INLINE int64_t RoundVectors(const float* from, int64_t count, To* to) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    StoreRounded(d, hn::LoadU(d, from + i), to + i);
  }
  return i;
}

int64_t RoundVectorsToFloat(const float* from, int64_t count, float* to) {
  return RoundVectors(from, count, to);
}

int64_t RoundVectorsToBFloat16(const float* from, int64_t count, BFloat16* to) {
  return RoundVectors(from, count, to);
}

int64_t RoundVectorsToFloat16(const float* from, int64_t count, Float16* to) {
  return RoundVectors(from, count, to);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace castor {

HWY_EXPORT(WidenBFloat16Vectors);
HWY_EXPORT(WidenFloat16Vectors);
HWY_EXPORT(RoundVectorsToFloat);
HWY_EXPORT(RoundVectorsToBFloat16);
HWY_EXPORT(RoundVectorsToFloat16);

void ConvertToFloat(const void* from, DType dtype, int64_t count, float* to) {
  if (dtype == DType::kF32) {
    std::copy_n(static_cast<const float*>(from), count, to);
    return;
  }
  if (dtype == DType::kF16) {
    const auto* low = static_cast<const Float16*>(from);
    int64_t i = HWY_DYNAMIC_DISPATCH(WidenFloat16Vectors)(low, count, to);
    for (; i < count; ++i) to[i] = Float16ToFloat(low[i].bits);
    return;
  }
  CASTOR_CHECK(dtype == DType::kBF16);
  const auto* low = static_cast<const BFloat16*>(from);
  int64_t i = HWY_DYNAMIC_DISPATCH(WidenBFloat16Vectors)(low, count, to);
  for (; i < count; ++i) to[i] = BFloat16ToFloat(low[i].bits);
}

void ConvertFromFloat(const float* from, int64_t count, DType dtype, void* to) {
  if (dtype == DType::kF32) {
    auto* full = static_cast<float*>(to);
    int64_t i = HWY_DYNAMIC_DISPATCH(RoundVectorsToFloat)(from, count, full);
    for (; i < count; ++i) full[i] = WithCanonicalNaN(from[i]);
    return;
  }
  if (dtype == DType::kF16) {
    // Denormals are rounded by a floating-point addition.
    const DefaultFloatMode mode;
    auto* low = static_cast<Float16*>(to);
    int64_t i = HWY_DYNAMIC_DISPATCH(RoundVectorsToFloat16)(from, count, low);
    for (; i < count; ++i) low[i].bits = FloatToFloat16(from[i]);
    return;
  }
  CASTOR_CHECK(dtype == DType::kBF16);
  auto* low = static_cast<BFloat16*>(to);
  int64_t i = HWY_DYNAMIC_DISPATCH(RoundVectorsToBFloat16)(from, count, low);
  for (; i < count; ++i) low[i].bits = FloatToBFloat16(from[i]);
}

}  // namespace castor

#endif  // HWY_ONCE
