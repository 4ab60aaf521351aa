// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>

#include "tools/examples/gpt/layers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/examples/gpt/activation.cc"
#include <hwy/foreach_target.h>  // compiles this file once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace castor::gpt {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// exp(x) = 2^n exp(r) with |r| <= ln(2) / 2. ln(2) is split in two so that
// n * kLn2High is exact; the series ends where its rest is below half a unit.
template <typename T>
struct ExpTraits;
template <>
struct ExpTraits<float> {
  static constexpr float kLeast = -87.0f;
  static constexpr float kMost = 88.0f;
  static constexpr float kLn2High = 0.693359375f;
  static constexpr float kLn2Low = -2.12194440e-4f;
  static constexpr int kDegree = 7;
  static constexpr int kMantissaBits = 23;
  static constexpr int kBias = 127;
};
template <>
struct ExpTraits<double> {
  static constexpr double kLeast = -708.0;
  static constexpr double kMost = 709.0;
  static constexpr double kLn2High = 6.93147180369123816490e-01;
  static constexpr double kLn2Low = 1.90821492927058770002e-10;
  static constexpr int kDegree = 13;
  static constexpr int kMantissaBits = 52;
  static constexpr int kBias = 1023;
};

template <typename T>
constexpr T InverseFactorial(int n) {
  double factorial = 1;
  for (int i = 2; i <= n; ++i) factorial *= i;
  return static_cast<T>(1 / factorial);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  using T = hn::TFromD<D>;
  using Traits = ExpTraits<T>;
  x = hn::Min(hn::Max(x, hn::Set(d, Traits::kLeast)),
              hn::Set(d, Traits::kMost));
  const V n = hn::Round(hn::Mul(x, hn::Set(d, T(1.4426950408889634074))));
  const V r = hn::Sub(hn::Sub(x, hn::Mul(n, hn::Set(d, Traits::kLn2High))),
                      hn::Mul(n, hn::Set(d, Traits::kLn2Low)));
  V sum = hn::Set(d, InverseFactorial<T>(Traits::kDegree));
  for (int i = Traits::kDegree - 1; i >= 0; --i) {
    sum = hn::Add(hn::Mul(sum, r), hn::Set(d, InverseFactorial<T>(i)));
  }
  const hn::RebindToSigned<D> di;
  const auto biased = hn::Add(hn::ConvertTo(di, n), hn::Set(di, Traits::kBias));
  const V power = hn::BitCast(d, hn::ShiftLeft<Traits::kMantissaBits>(biased));
  return hn::Mul(sum, power);
}

// Of GELU(x) = x s(2u) with s the logistic function: s and d(2u)/dx.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Logistic(D d, V x, V* inner_slope) {
  using T = hn::TFromD<D>;
  constexpr T kTwoSqrtTwoOverPi = T(1.5957691216057307117597842397375);
  constexpr T kCubic = T(0.044715);
  const V square = hn::Mul(x, x);
  const V scale = hn::Set(d, kTwoSqrtTwoOverPi);
  const V one = hn::Set(d, T(1));
  const V twice_u = hn::Mul(hn::Mul(x, scale),
                            hn::Add(one, hn::Mul(square, hn::Set(d, kCubic))));
  *inner_slope =
      hn::Mul(scale, hn::Add(one, hn::Mul(square, hn::Set(d, 3 * kCubic))));
  return hn::Div(one, hn::Add(one, Exp(d, hn::Neg(twice_u))));
}

// first[i] = f(x[i], &second[i]), by whole vectors; what is left over goes
// through a buffer of a whole vector. `second` may be null, outputs may be `x`.
template <typename T, class F>
HWY_INLINE void ForEach(const T* x, int64_t count, T* first, T* second,
                        const F& f) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one_vector = [&](const T* from, T* to, T* also_to) HWY_ATTR {
    auto also = hn::Zero(d);
    hn::StoreU(f(d, hn::LoadU(d, from), &also), d, to);
    if (also_to != nullptr) hn::StoreU(also, d, also_to);
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    one_vector(x + i, first + i, second == nullptr ? nullptr : second + i);
  }
  if (i == count) return;
  T from[hn::MaxLanes(d)] = {};
  T to[hn::MaxLanes(d)];
  T also_to[hn::MaxLanes(d)];
  std::copy(x + i, x + count, from);
  one_vector(from, to, also_to);
  std::copy_n(to, count - i, first + i);
  if (second != nullptr) std::copy_n(also_to, count - i, second + i);
}

template <typename T>
HWY_INLINE void GeluOf(const T* x, int64_t count, T* y) {
  ForEach(x, count, y, static_cast<T*>(nullptr),
          [](auto d, auto v, auto* slope)
              HWY_ATTR { return hn::Mul(v, Logistic(d, v, slope)); });
}

template <typename T>
HWY_INLINE void GeluAndSlopeOf(T* x, int64_t count, T* y) {
  ForEach(x, count, y, x, [](auto d, auto v, auto* slope) HWY_ATTR {
    auto inner = hn::Zero(d);
    const auto s = Logistic(d, v, &inner);
    const auto rest = hn::Sub(hn::Set(d, T(1)), s);
    *slope = hn::Add(s, hn::Mul(hn::Mul(v, inner), hn::Mul(s, rest)));
    return hn::Mul(v, s);
  });
}

template <typename T>
HWY_INLINE void ExpMinusOf(T* x, int64_t count, T shift) {
  ForEach(x, count, x, static_cast<T*>(nullptr),
          [shift](auto d, auto v, auto*)
              HWY_ATTR { return Exp(d, hn::Sub(v, hn::Set(d, shift))); });
}

// What HWY_EXPORT takes: no templates, no overloads.
void GeluF32(const float* x, int64_t count, float* y) { GeluOf(x, count, y); }
void GeluF64(const double* x, int64_t count, double* y) { GeluOf(x, count, y); }
void GeluAndSlopeF32(float* x, int64_t count, float* y) {
  GeluAndSlopeOf(x, count, y);
}
void GeluAndSlopeF64(double* x, int64_t count, double* y) {
  GeluAndSlopeOf(x, count, y);
}
void ExpMinusF32(float* x, int64_t count, float shift) {
  ExpMinusOf(x, count, shift);
}
void ExpMinusF64(double* x, int64_t count, double shift) {
  ExpMinusOf(x, count, shift);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace castor::gpt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace castor::gpt {
namespace {

HWY_EXPORT(GeluF32);
HWY_EXPORT(GeluF64);
HWY_EXPORT(GeluAndSlopeF32);
HWY_EXPORT(GeluAndSlopeF64);
HWY_EXPORT(ExpMinusF32);
HWY_EXPORT(ExpMinusF64);

}  // namespace

void Gelu(const float* x, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(GeluF32)(x, count, y);
}
void Gelu(const double* x, int64_t count, double* y) {
  HWY_DYNAMIC_DISPATCH(GeluF64)(x, count, y);
}
void GeluAndSlope(float* x, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(GeluAndSlopeF32)(x, count, y);
}
void GeluAndSlope(double* x, int64_t count, double* y) {
  HWY_DYNAMIC_DISPATCH(GeluAndSlopeF64)(x, count, y);
}
void ExpMinus(float* x, int64_t count, float shift) {
  HWY_DYNAMIC_DISPATCH(ExpMinusF32)(x, count, shift);
}
void ExpMinus(double* x, int64_t count, double shift) {
  HWY_DYNAMIC_DISPATCH(ExpMinusF64)(x, count, shift);
}

}  // namespace castor::gpt
#endif  // HWY_ONCE
