// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/adamw.h"

#include <cmath>

#include "chunk/base/check.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/float_mode.h"

namespace castor {

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
  AdamWStepScalar(buffers, count, scalars, grad_factor);
}

void AdamWStepScalar(const AdamWBuffers& b, int64_t count,
                     const AdamWScalars& s, float grad_factor) {
  const bool widen = b.grad_dtype == DType::kBF16;
  CASTOR_CHECK(widen || b.grad_dtype == DType::kF32);
  CASTOR_CHECK(b.low == nullptr || b.low_dtype == DType::kBF16);
  const DefaultFloatMode mode;
  for (int64_t i = 0; i < count; ++i) {
    const float grad =
        widen ? BFloat16ToFloat(static_cast<const uint16_t*>(b.grad)[i])
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
}

}  // namespace castor
