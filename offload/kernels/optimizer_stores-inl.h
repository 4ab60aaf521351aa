// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Part of optimizer_simd-inl.h: what all passes share, how new values are
// rounded, by chance too, and how they are stored.
//
// Compiled once for each instruction set, by Highway's foreach_target.h; hence
// the guard that toggles.

#if defined(CASTOR_OFFLOAD_KERNELS_OPTIMIZER_STORES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef CASTOR_OFFLOAD_KERNELS_OPTIMIZER_STORES_INL_H_
#undef CASTOR_OFFLOAD_KERNELS_OPTIMIZER_STORES_INL_H_
#else
#define CASTOR_OFFLOAD_KERNELS_OPTIMIZER_STORES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "chunk/base/dtype.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "offload/kernels/numbers/stochastic_rounding.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

// StochasticBits of the elements from `index` on.
template <class D32>
HWY_INLINE hn::Vec<D32> StochasticLanes(D32 d, StochasticKey key,
                                        uint64_t index) {
  using stochastic_internal::kHighMultiplier;
  using stochastic_internal::kMultiplier1;
  using stochastic_internal::kMultiplier2;
  const auto low_start = hn::Set(d, static_cast<uint32_t>(index));
  const auto low = hn::Add(low_start, hn::Iota(d, 0));
  // What the upper half of the index adds to the key; one more of it in lanes
  // in which the lower half has wrapped around.
  const uint32_t far_start =
      static_cast<uint32_t>(index >> 32) * kHighMultiplier;
  const auto far = hn::IfThenElse(hn::Lt(low, low_start),
                                  hn::Set(d, far_start + kHighMultiplier),
                                  hn::Set(d, far_start));
  auto x = hn::Xor(low, hn::Add(hn::Set(d, key.first), far));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, kMultiplier1));
  x = hn::Xor(x, hn::Add(hn::Set(d, key.second), far));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, kMultiplier2));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

// Writes the parameter in low precision. Not past the caches: on Zen 3 that
// made every optimizer's pass slower, by an eighth and more, though it saves
// reading what is overwritten.
template <class D>
HWY_INLINE void StoreLow(D d, hn::Vec<D> p, DType dtype, void* low, int64_t i) {
  if (low == nullptr) return;
  if (dtype == DType::kF16) {
    StoreRounded(d, p, static_cast<Float16*>(low) + i);
  } else {
    StoreRounded(d, p, static_cast<BFloat16*>(low) + i);
  }
}

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

// New values beside the old ones: past the caches, which would read what is
// overwritten. REQUIRES: `to` is aligned as vectors are.
template <class D>
HWY_INLINE void StreamRounded(D d, hn::Vec<D> value, float* to) {
  hn::Stream(WithCanonicalNaN(d, value), d, to);
}

// Whether all of these are aligned as vectors of `bytes` are.
inline bool AllAligned(const OptimizerBuffers& buffers, size_t bytes) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(buffers.new_param);
  bits |= reinterpret_cast<uintptr_t>(buffers.new_exp_avg);
  bits |= reinterpret_cast<uintptr_t>(buffers.new_exp_avg_sq);
  return bits % bytes == 0;
}

// How far ahead of the loop elements are asked for: processors' own prefetchers
// stop at the end of each page, and a pass reads up to four streams. On Zen 5
// AdamW took 0.90 to 0.98 of its time with one thread.
inline constexpr size_t kElementsAhead = 512;

template <class T>
HWY_INLINE void PrefetchAhead(const T* element) {
  // Past the end of an array nothing is read, and no access faults.
  const auto at = reinterpret_cast<uintptr_t>(element);
  hwy::Prefetch(reinterpret_cast<const char*>(at + kElementsAhead * sizeof(T)));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#endif  // CASTOR_OFFLOAD_KERNELS_OPTIMIZER_STORES_INL_H_
