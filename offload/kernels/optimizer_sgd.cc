// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstdint>

#include "offload/kernels/optimizer_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/kernels/optimizer_sgd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "offload/kernels/optimizer_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

struct SgdRule {
  static constexpr int kMoments = 0;
  const OptimizerScalars s;

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE void Update(D d, V g, V& p, V&, V&) const {
    if (s.l2 != 0) g = hn::Add(g, hn::Mul(p, hn::Set(d, s.l2)));
    p = hn::Sub(p, hn::Mul(hn::Set(d, s.step_size), g));
  }
};

struct MomentumRule {
  static constexpr int kMoments = 1;
  const OptimizerScalars s;

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE void Update(D d, V g, V& p, V& m, V&) const {
    if (s.l2 != 0) g = hn::Add(g, hn::Mul(p, hn::Set(d, s.l2)));
    m = hn::Add(hn::Mul(m, hn::Set(d, s.beta1)),
                hn::Mul(g, hn::Set(d, s.grad_weight1)));
    const auto direction =
        s.nesterov ? hn::Add(g, hn::Mul(m, hn::Set(d, s.beta1))) : m;
    p = hn::Sub(p, hn::Mul(hn::Set(d, s.step_size), direction));
  }
};

int64_t UpdateBySgd(const OptimizerBuffers& buffers, int64_t count,
                    const OptimizerScalars& scalars, float grad_factor) {
  return Update<SgdRule>(buffers, count, scalars, grad_factor);
}

int64_t UpdateByMomentum(const OptimizerBuffers& buffers, int64_t count,
                         const OptimizerScalars& scalars, float grad_factor) {
  return Update<MomentumRule>(buffers, count, scalars, grad_factor);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace castor {

HWY_EXPORT(UpdateBySgd);
HWY_EXPORT(UpdateByMomentum);

int64_t SgdVectors(const OptimizerBuffers& buffers, int64_t count,
                   const OptimizerScalars& scalars, float grad_factor) {
  return HWY_DYNAMIC_DISPATCH(UpdateBySgd)(buffers, count, scalars,
                                           grad_factor);
}

int64_t MomentumVectors(const OptimizerBuffers& buffers, int64_t count,
                        const OptimizerScalars& scalars, float grad_factor) {
  return HWY_DYNAMIC_DISPATCH(UpdateByMomentum)(buffers, count, scalars,
                                                grad_factor);
}

}  // namespace castor

#endif  // HWY_ONCE
