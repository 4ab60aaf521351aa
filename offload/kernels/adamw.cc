// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/adamw.h"

#include <cmath>

#include "chunk/base/check.h"
#include "offload/kernels/bfloat16.h"
#include "offload/kernels/float_mode.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/kernels/adamw.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "offload/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

template <typename Grad>
HWY_INLINE int64_t UpdateVectors(const Grad* grad, const AdamWBuffers& buffers,
                                 int64_t count, const AdamWScalars& scalars,
                                 float grad_factor) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, grad_factor);
  const auto decay = hn::Set(d, scalars.decay);
  const auto beta1 = hn::Set(d, scalars.beta1);
  const auto one_minus_beta1 = hn::Set(d, scalars.one_minus_beta1);
  const auto beta2 = hn::Set(d, scalars.beta2);
  const auto one_minus_beta2 = hn::Set(d, scalars.one_minus_beta2);
  const auto step_size = hn::Set(d, scalars.step_size);
  const auto sqrt_bias2 = hn::Set(d, scalars.sqrt_bias2);
  const auto eps = hn::Set(d, scalars.eps);
  float* const param = buffers.param;
  float* const exp_avg = buffers.exp_avg;
  float* const exp_avg_sq = buffers.exp_avg_sq;
  uint16_t* const low = static_cast<uint16_t*>(buffers.low);

  int64_t i = 0;
  for (; i + step <= count; i += step) {
    const auto g = hn::Mul(LoadWidened(d, grad + i), factor);
    const auto m = hn::Add(hn::Mul(hn::LoadU(d, exp_avg + i), beta1),
                           hn::Mul(g, one_minus_beta1));
    const auto v = hn::Add(hn::Mul(hn::LoadU(d, exp_avg_sq + i), beta2),
                           hn::Mul(hn::Mul(g, g), one_minus_beta2));
    const auto denominator = hn::Add(hn::Div(hn::Sqrt(v), sqrt_bias2), eps);
    const auto p = hn::Sub(hn::Mul(hn::LoadU(d, param + i), decay),
                           hn::Mul(step_size, hn::Div(m, denominator)));
    StoreRounded(d, m, exp_avg + i);
    StoreRounded(d, v, exp_avg_sq + i);
    StoreRounded(d, p, param + i);
    if (low != nullptr) StoreRounded(d, p, low + i);
  }
  return i;
}

int64_t UpdateVectorsFromFloat(const AdamWBuffers& buffers, int64_t count,
                               const AdamWScalars& scalars, float grad_factor) {
  return UpdateVectors(static_cast<const float*>(buffers.grad), buffers, count,
                       scalars, grad_factor);
}

int64_t UpdateVectorsFromBFloat16(const AdamWBuffers& buffers, int64_t count,
                                  const AdamWScalars& scalars,
                                  float grad_factor) {
  return UpdateVectors(static_cast<const uint16_t*>(buffers.grad), buffers,
                       count, scalars, grad_factor);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace castor {
namespace {

HWY_EXPORT(UpdateVectorsFromFloat);
HWY_EXPORT(UpdateVectorsFromBFloat16);

void CheckTypes(const AdamWBuffers& buffers) {
  CASTOR_CHECK(buffers.grad_dtype == DType::kF32 ||
               buffers.grad_dtype == DType::kBF16);
  CASTOR_CHECK(buffers.low == nullptr || buffers.low_dtype == DType::kBF16);
}

void UpdateElement(const AdamWBuffers& b, int64_t i, const AdamWScalars& s,
                   float grad_factor) {
  const float grad =
      b.grad_dtype == DType::kBF16
          ? BFloat16ToFloat(static_cast<const uint16_t*>(b.grad)[i])
          : static_cast<const float*>(b.grad)[i];
  const float g = grad * grad_factor;
  float p = b.param[i] * s.decay;
  const float m = b.exp_avg[i] * s.beta1 + g * s.one_minus_beta1;
  const float v = b.exp_avg_sq[i] * s.beta2 + (g * g) * s.one_minus_beta2;
  p = p - s.step_size * (m / (std::sqrt(v) / s.sqrt_bias2 + s.eps));
  b.exp_avg[i] = WithCanonicalNaN(m);
  b.exp_avg_sq[i] = WithCanonicalNaN(v);
  b.param[i] = WithCanonicalNaN(p);
  if (b.low != nullptr) static_cast<uint16_t*>(b.low)[i] = FloatToBFloat16(p);
}

}  // namespace

AdamWScalars ComputeAdamWScalars(const AdamWOptions& options, int64_t step) {
  CASTOR_CHECK_GE(step, 1);
  const double steps = static_cast<double>(step);
  const double bias1 = 1 - std::pow(options.beta1, steps);
  const double bias2 = 1 - std::pow(options.beta2, steps);
  return {
      .decay = static_cast<float>(1 - options.lr * options.weight_decay),
      .beta1 = static_cast<float>(options.beta1),
      .one_minus_beta1 = static_cast<float>(1 - options.beta1),
      .beta2 = static_cast<float>(options.beta2),
      .one_minus_beta2 = static_cast<float>(1 - options.beta2),
      .step_size = static_cast<float>(options.lr / bias1),
      .sqrt_bias2 = static_cast<float>(std::sqrt(bias2)),
      .eps = static_cast<float>(options.eps),
  };
}

void AdamWStep(const AdamWBuffers& buffers, int64_t count,
               const AdamWScalars& scalars, float grad_factor) {
  CheckTypes(buffers);
  const DefaultFloatMode mode;
  int64_t i = buffers.grad_dtype == DType::kBF16
                  ? HWY_DYNAMIC_DISPATCH(UpdateVectorsFromBFloat16)(
                        buffers, count, scalars, grad_factor)
                  : HWY_DYNAMIC_DISPATCH(UpdateVectorsFromFloat)(
                        buffers, count, scalars, grad_factor);
  for (; i < count; ++i) UpdateElement(buffers, i, scalars, grad_factor);
}

void AdamWStepScalar(const AdamWBuffers& buffers, int64_t count,
                     const AdamWScalars& scalars, float grad_factor) {
  CheckTypes(buffers);
  const DefaultFloatMode mode;
  for (int64_t i = 0; i < count; ++i) {
    UpdateElement(buffers, i, scalars, grad_factor);
  }
}

}  // namespace castor

#endif  // HWY_ONCE
