// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The pass that all optimizers share, around a Rule that holds one formula:
//
//   struct Rule {
//     static constexpr int kMoments;  // 0, 1 or 2
//     template <class D, class V = hn::Vec<D>>
//     void Update(D d, V g, V& p, V& m, V& v) const;  // as optimizer_math.h
//   };
//
// Compiled once for each instruction set, by Highway's foreach_target.h; hence
// the guard that toggles.

#if defined(CASTOR_OFFLOAD_KERNELS_OPTIMIZER_SIMD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef CASTOR_OFFLOAD_KERNELS_OPTIMIZER_SIMD_INL_H_
#undef CASTOR_OFFLOAD_KERNELS_OPTIMIZER_SIMD_INL_H_
#else
#define CASTOR_OFFLOAD_KERNELS_OPTIMIZER_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "chunk/base/dtype.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/optimizer_blocks-inl.h"
#include "offload/kernels/optimizer_stores-inl.h"
#include "offload/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

// `kStreams`: new values go aside, and past the caches.
template <class Rule, class Grad, class Moment, bool kStreams>
HWY_INLINE int64_t UpdateVectors(const OptimizerBuffers& buffers, int64_t count,
                                 const OptimizerScalars& scalars,
                                 float grad_factor) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> d32;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  // Copies, which no store below can change, so that registers hold them.
  const Rule rule{scalars};
  const MomentRounding rounding = buffers.rounding;
  void* const low = buffers.low;
  const DType low_dtype = buffers.low_dtype;
  const auto* const grad = static_cast<const Grad*>(buffers.grad);
  const float* const param = buffers.param;
  const auto* const exp_avg = static_cast<const Moment*>(buffers.exp_avg);
  const auto* const exp_avg_sq = static_cast<const Moment*>(buffers.exp_avg_sq);
  const bool aside = buffers.new_param != nullptr;
  float* const new_param = aside ? buffers.new_param : buffers.param;
  auto* const new_exp_avg =
      static_cast<Moment*>(aside ? buffers.new_exp_avg : buffers.exp_avg);
  auto* const new_exp_avg_sq =
      static_cast<Moment*>(aside ? buffers.new_exp_avg_sq : buffers.exp_avg_sq);

  int64_t i = 0;
  for (; i + step <= count; i += step) {
    PrefetchAhead(grad + i);
    PrefetchAhead(param + i);
    if constexpr (Rule::kMoments >= 1) PrefetchAhead(exp_avg + i);
    if constexpr (Rule::kMoments >= 2) PrefetchAhead(exp_avg_sq + i);
    const auto g = hn::Mul(LoadWidened(d, grad + i), hn::Set(d, grad_factor));
    auto p = hn::LoadU(d, param + i);
    auto m = hn::Zero(d);
    auto v = hn::Zero(d);
    if constexpr (Rule::kMoments >= 1) m = LoadWidened(d, exp_avg + i);
    if constexpr (Rule::kMoments >= 2) v = LoadWidened(d, exp_avg_sq + i);
    rule.Update(d, g, p, m, v);
    auto chance = hn::Zero(d32);
    if (std::is_same_v<Moment, BFloat16> && rounding.stochastic) {
      chance = StochasticLanes(
          d32, rounding.key, static_cast<uint64_t>(rounding.first_element + i));
    }
    if constexpr (kStreams) {
      if constexpr (Rule::kMoments >= 1) StreamRounded(d, m, new_exp_avg + i);
      if constexpr (Rule::kMoments >= 2) {
        StreamRounded(d, v, new_exp_avg_sq + i);
      }
      StreamRounded(d, p, new_param + i);
    } else {
      if constexpr (Rule::kMoments >= 1) {
        StoreMoment(d, m, rounding.stochastic,
                    hn::And(chance, hn::Set(d32, 0xFFFF)), new_exp_avg + i);
      }
      if constexpr (Rule::kMoments >= 2) {
        StoreMoment(d, v, rounding.stochastic, hn::ShiftRight<16>(chance),
                    new_exp_avg_sq + i);
      }
      StoreRounded(d, p, new_param + i);
    }
    StoreLow(d, p, low_dtype, low, i);
  }
  // Who reads them next may be another thread.
  if constexpr (kStreams) hwy::FlushStream();
  return i;
}

template <class Rule, class Grad>
HWY_INLINE int64_t UpdateFrom(const OptimizerBuffers& buffers, int64_t count,
                              const OptimizerScalars& scalars,
                              float grad_factor) {
  const size_t vector = hn::Lanes(hn::ScalableTag<float>()) * sizeof(float);
  if constexpr (Rule::kMoments > 0) {
    if (buffers.moment_dtype == DType::kBF16) {
      return UpdateVectors<Rule, Grad, BFloat16, false>(buffers, count, scalars,
                                                        grad_factor);
    }
    if (IsBlocks8(buffers.moment_dtype)) {
      const bool streams =
          buffers.new_param != nullptr &&
          reinterpret_cast<uintptr_t>(buffers.new_param) % vector == 0;
      const auto update = [&](auto by_chance) {
        constexpr bool kByChance = decltype(by_chance)::value;
        return streams ? UpdateBlocks<Rule, Grad, true, kByChance>(
                             buffers, count, scalars, grad_factor)
                       : UpdateBlocks<Rule, Grad, false, kByChance>(
                             buffers, count, scalars, grad_factor);
      };
      return buffers.rounding.stochastic ? update(std::true_type())
                                         : update(std::false_type());
    }
  }
  if (buffers.new_param != nullptr && AllAligned(buffers, vector)) {
    return UpdateVectors<Rule, Grad, float, true>(buffers, count, scalars,
                                                  grad_factor);
  }
  return UpdateVectors<Rule, Grad, float, false>(buffers, count, scalars,
                                                 grad_factor);
}

template <class Rule>
HWY_INLINE int64_t Update(const OptimizerBuffers& buffers, int64_t count,
                          const OptimizerScalars& scalars, float grad_factor) {
  switch (buffers.grad_dtype) {
    case DType::kBF16:
      return UpdateFrom<Rule, BFloat16>(buffers, count, scalars, grad_factor);
    case DType::kF16:
      return UpdateFrom<Rule, Float16>(buffers, count, scalars, grad_factor);
    default:
      return UpdateFrom<Rule, float>(buffers, count, scalars, grad_factor);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#endif  // CASTOR_OFFLOAD_KERNELS_OPTIMIZER_SIMD_INL_H_
