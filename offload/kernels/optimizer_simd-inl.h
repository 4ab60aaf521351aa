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

#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/simd-inl.h"
#include "offload/kernels/stochastic_rounding.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

// stochastic_internal::Scramble in every lane.
template <class D32, class V = hn::Vec<D32>>
HWY_INLINE V ScrambleLanes(D32 d, V x) {
  using stochastic_internal::kMultiplier1;
  using stochastic_internal::kMultiplier2;
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, kMultiplier1));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, kMultiplier2));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

// StochasticBits of the elements from `index` on.
template <class D32>
HWY_INLINE hn::Vec<D32> StochasticLanes(D32 d, StochasticKey key,
                                        uint64_t index) {
  const auto start = hn::Set(d, static_cast<uint32_t>(index));
  const auto low = hn::Add(start, hn::Iota(d, 0));
  // Lanes past a multiple of 2^32 have wrapped.
  const auto high = hn::Sub(hn::Set(d, static_cast<uint32_t>(index >> 32)),
                            hn::VecFromMask(d, hn::Lt(low, start)));
  const auto high_part =
      hn::Mul(high, hn::Set(d, stochastic_internal::kHighMultiplier));
  const auto inner = ScrambleLanes(d, hn::Xor(low, hn::Set(d, key.first)));
  return ScrambleLanes(
      d, hn::Xor(hn::Xor(inner, hn::Set(d, key.second)), high_part));
}

// Highway streams whole registers, of which the smallest has 16 bytes.
constexpr size_t kLowVectorBytes =
    hn::MaxLanes(hn::ScalableTag<float>()) * sizeof(uint16_t);
constexpr bool kCanStream = kLowVectorBytes >= 16;

// Writes the parameter in low precision, past the caches where that pays: what
// is only written need not be read first, and is next read by a copy engine or
// a collective.
class LowWriter {
 public:
  LowWriter(const OptimizerBuffers& buffers, int64_t count)
      : to_(static_cast<uint16_t*>(buffers.low)),
        is_float16_(buffers.low_dtype == DType::kF16),
        streams_(kCanStream && count >= kLeastStreamed &&
                 reinterpret_cast<uintptr_t>(to_) % kLowVectorBytes == 0) {}

  template <class D>
  HWY_INLINE void Store(D d, hn::Vec<D> p, int64_t i) const {
    if (to_ == nullptr) return;
    const auto rounded =
        is_float16_ ? RoundToFloat16(d, p) : RoundToBFloat16(d, p);
    const hn::Rebind<uint16_t, D> low;
    if constexpr (kCanStream) {
      if (streams_) {
        hn::Stream(rounded, low, to_ + i);
        return;
      }
    }
    hn::StoreU(rounded, low, to_ + i);
  }

  // Makes what was streamed visible to threads that are told so.
  HWY_INLINE void Finish() const {
    if (to_ != nullptr && streams_) hwy::FlushStream();
  }

 private:
  // Fewer are likely to be read again from a cache.
  static constexpr int64_t kLeastStreamed = int64_t{1} << 14;

  uint16_t* const to_;
  const bool is_float16_;
  const bool streams_;
};

template <class D, class Moment>
HWY_INLINE void StoreMoment(D d, hn::Vec<D> value, bool stochastic,
                            hn::Vec<hn::RebindToUnsigned<D>> chance,
                            Moment* to) {
  if constexpr (std::is_same_v<Moment, BFloat16>) {
    if (stochastic) {
      const hn::Rebind<uint16_t, D> low;
      hn::StoreU(RoundToBFloat16ByChance(d, value, chance), low, &to->bits);
      return;
    }
  }
  (void)stochastic;
  (void)chance;
  StoreRounded(d, value, to);
}

template <class Rule, class Grad, class Moment>
HWY_INLINE int64_t UpdateVectors(const OptimizerBuffers& buffers, int64_t count,
                                 const OptimizerScalars& scalars,
                                 float grad_factor) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> d32;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  // Copies, which no store below can change, so that registers hold them.
  const Rule rule{scalars};
  const MomentRounding rounding = buffers.rounding;
  const LowWriter low(buffers, count);
  const auto* const grad = static_cast<const Grad*>(buffers.grad);
  float* const param = buffers.param;
  auto* const exp_avg = static_cast<Moment*>(buffers.exp_avg);
  auto* const exp_avg_sq = static_cast<Moment*>(buffers.exp_avg_sq);

  int64_t i = 0;
  for (; i + step <= count; i += step) {
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
    if constexpr (Rule::kMoments >= 1) {
      StoreMoment(d, m, rounding.stochastic,
                  hn::And(chance, hn::Set(d32, 0xFFFF)), exp_avg + i);
    }
    if constexpr (Rule::kMoments >= 2) {
      StoreMoment(d, v, rounding.stochastic, hn::ShiftRight<16>(chance),
                  exp_avg_sq + i);
    }
    StoreRounded(d, p, param + i);
    low.Store(d, p, i);
  }
  low.Finish();
  return i;
}

template <class Rule, class Grad>
HWY_INLINE int64_t UpdateFrom(const OptimizerBuffers& buffers, int64_t count,
                              const OptimizerScalars& scalars,
                              float grad_factor) {
  if (Rule::kMoments > 0 && buffers.moment_dtype == DType::kBF16) {
    return UpdateVectors<Rule, Grad, BFloat16>(buffers, count, scalars,
                                               grad_factor);
  }
  return UpdateVectors<Rule, Grad, float>(buffers, count, scalars, grad_factor);
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
