// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstdint>

#include "offload/kernels/optimizer_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/kernels/optimizer_lion.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "offload/kernels/optimizer_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

struct LionRule {
  static constexpr int kMoments = 1;
  const OptimizerScalars s;

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE void Update(D d, V g, V& p, V& m, V&) const {
    const auto blend = hn::Add(hn::Mul(m, hn::Set(d, s.beta1)),
                               hn::Mul(g, hn::Set(d, s.grad_weight1)));
    // A step of either sign; none where the blend is zero; NaN where it is.
    auto step = hn::CopySign(hn::Set(d, s.step_size), blend);
    step = hn::IfThenZeroElse(hn::Eq(blend, hn::Zero(d)), step);
    step = hn::IfThenElse(hn::IsNaN(blend), blend, step);
    p = hn::Sub(hn::Mul(p, hn::Set(d, s.decay)), step);
    m = hn::Add(hn::Mul(m, hn::Set(d, s.beta2)),
                hn::Mul(g, hn::Set(d, s.grad_weight2)));
  }
};

int64_t UpdateByLion(const OptimizerBuffers& buffers, int64_t count,
                     const OptimizerScalars& scalars, float grad_factor) {
  return Update<LionRule>(buffers, count, scalars, grad_factor);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace castor {

HWY_EXPORT(UpdateByLion);

int64_t LionVectors(const OptimizerBuffers& buffers, int64_t count,
                    const OptimizerScalars& scalars, float grad_factor) {
  return HWY_DYNAMIC_DISPATCH(UpdateByLion)(buffers, count, scalars,
                                            grad_factor);
}

}  // namespace castor

#endif  // HWY_ONCE
