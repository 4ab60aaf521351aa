// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstdint>

#include "offload/kernels/optimizer_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/kernels/optimizer_adam.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "offload/kernels/optimizer_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

struct AdamRule {
  static constexpr int kMoments = 2;
  const OptimizerScalars s;

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE void Update(D d, V g, V& p, V& m, V& v) const {
    if (s.l2 != 0) g = hn::Add(g, hn::Mul(p, hn::Set(d, s.l2)));
    m = hn::Add(hn::Mul(m, hn::Set(d, s.beta1)),
                hn::Mul(g, hn::Set(d, s.grad_weight1)));
    v = hn::Add(hn::Mul(v, hn::Set(d, s.beta2)),
                hn::Mul(hn::Mul(g, g), hn::Set(d, s.grad_weight2)));
    const auto denominator = hn::Add(
        hn::Div(hn::Sqrt(v), hn::Set(d, s.sqrt_bias2)), hn::Set(d, s.eps));
    p = hn::Sub(hn::Mul(p, hn::Set(d, s.decay)),
                hn::Mul(hn::Set(d, s.step_size), hn::Div(m, denominator)));
  }
};

int64_t UpdateByAdam(const OptimizerBuffers& buffers, int64_t count,
                     const OptimizerScalars& scalars, float grad_factor) {
  return Update<AdamRule>(buffers, count, scalars, grad_factor);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace castor {

HWY_EXPORT(UpdateByAdam);

int64_t AdamVectors(const OptimizerBuffers& buffers, int64_t count,
                    const OptimizerScalars& scalars, float grad_factor) {
  return HWY_DYNAMIC_DISPATCH(UpdateByAdam)(buffers, count, scalars,
                                            grad_factor);
}

}  // namespace castor

#endif  // HWY_ONCE
