// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the vector kernels share: elements in memory, either fp32 or the bits of
// a bf16, against fp32 vectors. The same bits as bfloat16.h gives one by one. A
// kernel handles whole vectors, says how far it came, and leaves the rest to
// plain code. Multiplies and adds are separate: no MulAdd. Pure functions.
//
// Compiled once for each instruction set, by Highway's foreach_target.h; hence
// the guard that toggles.

#if defined(CASTOR_OFFLOAD_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CASTOR_OFFLOAD_KERNELS_SIMD_INL_H_
#undef CASTOR_OFFLOAD_KERNELS_SIMD_INL_H_
#else
#define CASTOR_OFFLOAD_KERNELS_SIMD_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "offload/kernels/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const uint16_t* from) {
  const hn::RebindToUnsigned<D> bits;
  const hn::Rebind<uint16_t, D> low;
  return hn::BitCast(
      d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(low, from))));
}

template <class D>
HWY_INLINE hn::Vec<D> WithCanonicalNaN(D d, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> bits;
  const auto nan = hn::BitCast(d, hn::Set(bits, kFloatNaNBits));
  return hn::IfThenElse(hn::IsNaN(value), nan, value);
}

template <class D>
HWY_INLINE void StoreRounded(D d, hn::Vec<D> value, float* to) {
  hn::StoreU(WithCanonicalNaN(d, value), d, to);
}

template <class D>
HWY_INLINE void StoreRounded(D d, hn::Vec<D> value, uint16_t* to) {
  const hn::RebindToUnsigned<D> bits;
  const hn::Rebind<uint16_t, D> low;
  // The canonical NaN comes through the rounding unchanged: its low half is
  // zero.
  const auto full = hn::BitCast(bits, WithCanonicalNaN(d, value));
  const auto odd = hn::And(hn::ShiftRight<16>(full), hn::Set(bits, 1));
  const auto rounded = hn::Add(hn::Add(full, hn::Set(bits, 0x7FFF)), odd);
  hn::StoreU(hn::TruncateTo(low, hn::ShiftRight<16>(rounded)), low, to);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#endif  // CASTOR_OFFLOAD_KERNELS_SIMD_INL_H_
