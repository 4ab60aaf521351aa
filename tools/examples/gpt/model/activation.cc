// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The functions of one element, on whatever vectors the machine has.

#include <algorithm>

#include "tools/examples/gpt/model/layers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/examples/gpt/model/activation.cc"
#include <hwy/foreach_target.h>  // compiles this file once per target
#include <hwy/highway.h>
// After highway.h, which it needs.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace castor::gpt {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Of GELU(x) = x s(2u) with s the logistic function: s and d(2u)/dx.
HWY_INLINE V Logistic(D d, V x, V* inner_slope) {
  constexpr float kTwoSqrtTwoOverPi = 1.59576912f;
  constexpr float kCubic = 0.044715f;
  const V square = hn::Mul(x, x);
  const V scale = hn::Set(d, kTwoSqrtTwoOverPi);
  const V one = hn::Set(d, 1.0f);
  const V twice_u =
      hn::Mul(hn::Mul(x, scale), hn::MulAdd(square, hn::Set(d, kCubic), one));
  *inner_slope =
      hn::Mul(scale, hn::MulAdd(square, hn::Set(d, 3 * kCubic), one));
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Neg(twice_u))));
}

// first[i] = f(x[i], &second[i]), by whole vectors; what is left over goes
// through a buffer of a whole vector. `second` may be null, outputs may be `x`.
template <class F>
HWY_INLINE void ForEach(const float* x, int64_t count, float* first,
                        float* second, const F& f) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one_vector = [&](const float* from, float* to,
                              float* also_to) HWY_ATTR {
    V also = hn::Zero(d);
    hn::StoreU(f(d, hn::LoadU(d, from), &also), d, to);
    if (also_to != nullptr) hn::StoreU(also, d, also_to);
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    one_vector(x + i, first + i, second == nullptr ? nullptr : second + i);
  }
  if (i == count) return;
  float from[hn::MaxLanes(d)] = {};
  float to[hn::MaxLanes(d)];
  float also_to[hn::MaxLanes(d)];
  std::copy(x + i, x + count, from);
  one_vector(from, to, also_to);
  std::copy_n(to, count - i, first + i);
  if (second != nullptr) std::copy_n(also_to, count - i, second + i);
}

void GeluOf(const float* x, int64_t count, float* y) {
  ForEach(x, count, y, nullptr, [](D d, V v, V* slope) HWY_ATTR {
    return hn::Mul(v, Logistic(d, v, slope));
  });
}

void GeluAndSlopeOf(float* x, int64_t count, float* y) {
  ForEach(x, count, y, x, [](D d, V v, V* slope) HWY_ATTR {
    V inner = hn::Zero(d);
    const V s = Logistic(d, v, &inner);
    const V rest = hn::Sub(hn::Set(d, 1.0f), s);
    *slope = hn::MulAdd(hn::Mul(v, inner), hn::Mul(s, rest), s);
    return hn::Mul(v, s);
  });
}

void ExpMinusOf(float* x, int64_t count, float shift) {
  ForEach(x, count, x, nullptr, [shift](D d, V v, V*) HWY_ATTR {
    return hn::Exp(d, hn::Sub(v, hn::Set(d, shift)));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace castor::gpt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace castor::gpt {

HWY_EXPORT(GeluOf);
HWY_EXPORT(GeluAndSlopeOf);
HWY_EXPORT(ExpMinusOf);

void Gelu(const float* x, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(GeluOf)(x, count, y);
}
void GeluAndSlope(float* x, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(GeluAndSlopeOf)(x, count, y);
}
void ExpMinus(float* x, int64_t count, float shift) {
  HWY_DYNAMIC_DISPATCH(ExpMinusOf)(x, count, shift);
}

}  // namespace castor::gpt
#endif  // HWY_ONCE
