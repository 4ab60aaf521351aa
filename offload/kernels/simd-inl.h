// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the vector kernels share: elements in memory, fp32, bf16 or fp16,
// against fp32 vectors. The same bits as bfloat16.h and float16.h give one by
// one, in the default floating-point mode. A kernel handles whole vectors, says
// how far it came, and leaves the rest to plain code. Multiplies and adds are
// separate: no MulAdd. Pure functions.
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
#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/float16.h"

// Whether the instruction set converts fp16, and rounds as it should: Highway's
// stand-in where it does not cuts off.
#undef CASTOR_NATIVE_FLOAT16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
#define CASTOR_NATIVE_FLOAT16 1
#else
#define CASTOR_NATIVE_FLOAT16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> WithCanonicalNaN(D d, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> bits;
  const auto nan = hn::BitCast(d, hn::Set(bits, kFloatNaNBits));
  return hn::IfThenElse(hn::IsNaN(value), nan, value);
}

// The low halves of `rounded`, as vectors of 16 bits.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> Low16(
    D, hn::Vec<hn::RebindToUnsigned<D>> rounded) {
  return hn::TruncateTo(hn::Rebind<uint16_t, D>(), rounded);
}

// bf16.

template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> RoundToBFloat16(D d,
                                                            hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> bits;
  // The canonical NaN comes through the rounding unchanged: its low half is
  // zero.
  const auto full = hn::BitCast(bits, WithCanonicalNaN(d, value));
  const auto odd = hn::And(hn::ShiftRight<16>(full), hn::Set(bits, 1));
  const auto rounded = hn::Add(hn::Add(full, hn::Set(bits, 0x7FFF)), odd);
  return Low16(d, hn::ShiftRight<16>(rounded));
}

// As FloatToBFloat16Stochastic.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> RoundToBFloat16ByChance(
    D d, hn::Vec<D> value, hn::Vec<hn::RebindToUnsigned<D>> chance) {
  const hn::RebindToUnsigned<D> bits;
  const auto full = hn::BitCast(bits, WithCanonicalNaN(d, value));
  return Low16(d, hn::ShiftRight<16>(hn::Add(full, chance)));
}

// fp16.

template <class D>
HWY_INLINE hn::Vec<D> WidenFloat16(D d,
                                   hn::Vec<hn::Rebind<uint16_t, D>> value) {
#if CASTOR_NATIVE_FLOAT16
  const hn::Rebind<hwy::float16_t, D> half;
  return WithCanonicalNaN(d, hn::PromoteTo(d, hn::BitCast(half, value)));
#else
  const hn::RebindToUnsigned<D> bits;
  const hn::RebindToSigned<D> integer;
  const auto wide = hn::PromoteTo(bits, value);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(bits, 0x8000)));
  const auto magnitude = hn::And(wide, hn::Set(bits, 0x7FFF));
  const auto normal =
      hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(bits, 112u << 23));
  // A denormal counts units of 2^-24; the product is exact, and normal or zero.
  const auto denormal = hn::BitCast(
      bits, hn::Mul(hn::ConvertTo(d, hn::BitCast(integer, magnitude)),
                    hn::Set(d, 0x1p-24f)));
  // Infinity, and a NaN where there is a mantissa.
  const auto special =
      hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(bits, 224u << 23));
  auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits, 0x0400)),
                               denormal, normal);
  result =
      hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits, 0x7C00)), result, special);
  return WithCanonicalNaN(d, hn::BitCast(d, hn::Or(result, sign)));
#endif
}

template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> RoundToFloat16(D d,
                                                           hn::Vec<D> value) {
#if CASTOR_NATIVE_FLOAT16
  const hn::Rebind<uint16_t, D> low;
  const hn::Rebind<hwy::float16_t, D> half;
  // The canonical NaN becomes that of fp16: its payload is cut, and zero.
  return hn::BitCast(low, hn::DemoteTo(half, WithCanonicalNaN(d, value)));
#else
  const hn::RebindToUnsigned<D> bits;
  const auto full = hn::BitCast(bits, WithCanonicalNaN(d, value));
  const auto magnitude = hn::And(full, hn::Set(bits, 0x7FFFFFFF));
  const auto sign = hn::And(hn::ShiftRight<16>(full), hn::Set(bits, 0x8000));
  const auto rebiased = hn::Sub(magnitude, hn::Set(bits, 112u << 23));
  const auto odd = hn::And(hn::ShiftRight<13>(rebiased), hn::Set(bits, 1));
  const auto normal = hn::ShiftRight<13>(
      hn::Add(hn::Add(rebiased, hn::Set(bits, 0x0FFF)), odd));
  // Next to one half the last place of fp32 is the least denormal of fp16, so
  // this addition rounds to it.
  const auto half = hn::Set(d, 0.5f);
  const auto denormal =
      hn::Sub(hn::BitCast(bits, hn::Add(hn::BitCast(d, magnitude), half)),
              hn::BitCast(bits, half));
  const auto special =
      hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits, 0x7F800000)),
                     hn::Set(bits, kFloat16NaNBits), hn::Set(bits, 0x7C00));
  auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits, 0x38800000)),
                               denormal, normal);
  result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits, 0x47800000)), result,
                          special);
  return Low16(d, hn::Or(result, sign));
#endif
}

// Elements in memory.

template <class D>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const BFloat16* from) {
  const hn::RebindToUnsigned<D> bits;
  const hn::Rebind<uint16_t, D> low;
  return hn::BitCast(
      d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(low, &from->bits))));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const Float16* from) {
  const hn::Rebind<uint16_t, D> low;
  return WidenFloat16(d, hn::LoadU(low, &from->bits));
}

template <class D>
HWY_INLINE void StoreRounded(D d, hn::Vec<D> value, float* to) {
  hn::StoreU(WithCanonicalNaN(d, value), d, to);
}

template <class D>
HWY_INLINE void StoreRounded(D d, hn::Vec<D> value, BFloat16* to) {
  const hn::Rebind<uint16_t, D> low;
  hn::StoreU(RoundToBFloat16(d, value), low, &to->bits);
}

template <class D>
HWY_INLINE void StoreRounded(D d, hn::Vec<D> value, Float16* to) {
  const hn::Rebind<uint16_t, D> low;
  hn::StoreU(RoundToFloat16(d, value), low, &to->bits);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#endif  // CASTOR_OFFLOAD_KERNELS_SIMD_INL_H_
