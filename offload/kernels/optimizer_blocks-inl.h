// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Part of optimizer_simd-inl.h: moments in blocks of 8 bits (block_codes.h). A
// block's new values wait in L1 until its scale is known. Gives the bits of the
// functions in block_codes.h.
//
// Compiled once for each instruction set, by Highway's foreach_target.h; hence
// the guard that toggles.

#if defined(CASTOR_OFFLOAD_KERNELS_OPTIMIZER_BLOCKS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef CASTOR_OFFLOAD_KERNELS_OPTIMIZER_BLOCKS_INL_H_
#undef CASTOR_OFFLOAD_KERNELS_OPTIMIZER_BLOCKS_INL_H_
#else
#define CASTOR_OFFLOAD_KERNELS_OPTIMIZER_BLOCKS_INL_H_
#endif

#include <cstdint>

#include "chunk/base/dtype.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "offload/kernels/numbers/block_codes.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/optimizer_stores-inl.h"
#include "offload/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace castor {
namespace HWY_NAMESPACE {

// The values of the codes from `from` on.
template <bool kPositive, class D>
HWY_INLINE hn::Vec<D> DecodeCodes(D d, const uint8_t* from, hn::Vec<D> scale) {
  using block_internal::kBase;
  using block_internal::kPositiveBase;
  using block_internal::kShift;
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> i32;
  if constexpr (kPositive) {
    const hn::Rebind<uint8_t, D> d8;
    const auto code = hn::PromoteTo(d32, hn::LoadU(d8, from));
    const auto share =
        hn::ShiftLeft<kShift>(hn::Add(code, hn::Set(d32, kPositiveBase)));
    const auto is_zero = hn::Eq(code, hn::Zero(d32));
    return hn::Mul(hn::BitCast(d, hn::IfThenZeroElse(is_zero, share)), scale);
  } else {
    // A code's sign becomes all upper bits, of which the first is kept.
    const hn::Rebind<int8_t, D> i8;
    const auto code = hn::BitCast(
        d32, hn::PromoteTo(
                 i32, hn::LoadU(i8, reinterpret_cast<const int8_t*>(from))));
    const auto bits = hn::And(hn::ShiftLeft<kShift>(code),
                              hn::Set(d32, 0x80000000u | 0x7Fu << kShift));
    const auto is_zero =
        hn::Eq(hn::And(code, hn::Set(d32, 0x7F)), hn::Zero(d32));
    const auto share = hn::Add(
        bits, hn::IfThenZeroElse(is_zero, hn::Set(d32, kBase << kShift)));
    return hn::Mul(hn::BitCast(d, share), scale);
  }
}

// As EncodeValue and EncodePositive.
template <bool kPositive, class D>
HWY_INLINE void EncodeCodes(D d, hn::Vec<D> value, hn::Vec<D> inverse,
                            hn::Vec<hn::RebindToUnsigned<D>> chance,
                            uint8_t* to) {
  using block_internal::kBase;
  using block_internal::kChancesOfLeast;
  using block_internal::kLeast;
  using block_internal::kPositiveBase;
  using block_internal::kShift;
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> i32;
  const hn::Rebind<uint8_t, D> d8;
  const auto bits = hn::BitCast(d32, value);
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7FFFFFFF));
  const auto share =
      hn::Min(hn::Mul(hn::BitCast(d, magnitude), inverse), hn::Set(d, 1.0f));
  const auto rounded = hn::ShiftRight<kShift>(
      hn::Add(hn::BitCast(d32, share), hn::ShiftLeft<kShift - 16>(chance)));
  if constexpr (kPositive) {
    const auto above =
        hn::Max(hn::BitCast(i32, hn::Sub(rounded, hn::Set(d32, kPositiveBase))),
                hn::Set(i32, 1));
    const auto is_positive = hn::RebindMask(i32, hn::Gt(value, hn::Zero(d)));
    hn::StoreU(hn::TruncateTo(d8, hn::BitCast(d32, hn::IfThenElseZero(
                                                       is_positive, above))),
               d8, to);
  } else {
    const auto up = hn::Lt(hn::ConvertTo(d, hn::BitCast(i32, chance)),
                           hn::Mul(share, hn::Set(d, kChancesOfLeast)));
    const auto least =
        hn::IfThenElseZero(hn::RebindMask(d32, up), hn::Set(d32, 1));
    const auto is_least =
        hn::RebindMask(d32, hn::Lt(share, hn::Set(d, kLeast)));
    const auto code =
        hn::IfThenElse(is_least, least, hn::Sub(rounded, hn::Set(d32, kBase)));
    const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(d32, 0x80));
    hn::StoreU(hn::TruncateTo(d8, hn::Or(code, sign)), d8, to);
  }
}

// A moment of a block while it is updated.
struct BlockValues {
  alignas(64) float at[kBlockValues];
};

// What codes are computed with; zero where none is needed, and all of them are
// written zero.
inline float BeginBlock(uint32_t most, CodeBlock* to) {
  to->scale = ScaleOfBlock(most);
  if (to->scale > 0) return InverseOfScale(to->scale);
  for (uint8_t& code : to->codes) code = 0;
  return 0;
}

// As PrefetchAhead, of all that will be read of a block.
HWY_INLINE void PrefetchBlock(const CodeBlock* block) {
  constexpr size_t kLine = 64;
  constexpr size_t kAhead = kElementsAhead / kBlockValues * sizeof(CodeBlock);
  const auto at = reinterpret_cast<uintptr_t>(block) + kAhead;
  hwy::Prefetch(reinterpret_cast<const char*>(at));
  hwy::Prefetch(reinterpret_cast<const char*>(at + kLine));
}

// As UpdateVectors, of whole blocks. `kStreams`: new parameters go aside, and
// past the caches.
template <class Rule, class Grad, bool kStreams, bool kByChance>
HWY_INLINE int64_t UpdateBlocks(const OptimizerBuffers& buffers, int64_t count,
                                const OptimizerScalars& scalars,
                                float grad_factor) {
  const hn::CappedTag<float, kBlockValues> d;
  const hn::RebindToUnsigned<decltype(d)> d32;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const Rule rule{scalars};
  const MomentRounding rounding = buffers.rounding;
  void* const low = buffers.low;
  const DType low_dtype = buffers.low_dtype;
  const auto* const grad = static_cast<const Grad*>(buffers.grad);
  const float* const param = buffers.param;
  const bool aside = buffers.new_param != nullptr;
  float* const new_param = aside ? buffers.new_param : buffers.param;
  const auto* old_m = static_cast<const CodeBlock*>(buffers.exp_avg);
  const auto* old_v = static_cast<const CodeBlock*>(buffers.exp_avg_sq);
  auto* new_m =
      static_cast<CodeBlock*>(aside ? buffers.new_exp_avg : buffers.exp_avg);
  auto* new_v = static_cast<CodeBlock*>(aside ? buffers.new_exp_avg_sq
                                              : buffers.exp_avg_sq);
  BlockValues m_values;
  BlockValues v_values;

  int64_t begin = 0;
  for (; begin + kBlockValues <= count; begin += kBlockValues) {
    const auto m_scale = hn::Set(d, old_m->scale);
    auto most_m = hn::Zero(d32);
    auto v_scale = hn::Zero(d);
    auto most_v = hn::Zero(d32);
    if constexpr (Rule::kMoments >= 2) v_scale = hn::Set(d, old_v->scale);
    PrefetchBlock(old_m);
    if constexpr (Rule::kMoments >= 2) PrefetchBlock(old_v);
    for (int64_t j = 0; j < kBlockValues; j += step) {
      const int64_t i = begin + j;
      PrefetchAhead(grad + i);
      PrefetchAhead(param + i);
      const auto g = hn::Mul(LoadWidened(d, grad + i), hn::Set(d, grad_factor));
      auto p = hn::LoadU(d, param + i);
      auto m = DecodeCodes<false>(d, old_m->codes + j, m_scale);
      auto v = hn::Zero(d);
      if constexpr (Rule::kMoments >= 2) {
        v = DecodeCodes<true>(d, old_v->codes + j, v_scale);
      }
      rule.Update(d, g, p, m, v);
      if constexpr (kStreams) {
        StreamRounded(d, p, new_param + i);
      } else {
        StoreRounded(d, p, new_param + i);
      }
      StoreLow(d, p, low_dtype, low, i);
      const auto magnitude = hn::Set(d32, 0x7FFFFFFF);
      hn::Store(m, d, m_values.at + j);
      most_m = hn::Max(most_m, hn::And(hn::BitCast(d32, m), magnitude));
      if constexpr (Rule::kMoments >= 2) {
        hn::Store(v, d, v_values.at + j);
        most_v = hn::Max(most_v, hn::And(hn::BitCast(d32, v), magnitude));
      }
    }
    const float m_inverse =
        BeginBlock(hn::GetLane(hn::MaxOfLanes(d32, most_m)), new_m);
    float v_inverse = 0;
    if constexpr (Rule::kMoments >= 2) {
      v_inverse = BeginBlock(hn::GetLane(hn::MaxOfLanes(d32, most_v)), new_v);
    }
    for (int64_t j = 0; j < kBlockValues; j += step) {
      auto chance_m = hn::Set(d32, kNearest);
      auto chance_v = hn::Set(d32, kNearest);
      if constexpr (kByChance) {
        const auto chance = StochasticLanes(
            d32, rounding.key,
            static_cast<uint64_t>(rounding.first_element + begin + j));
        chance_m = hn::And(chance, hn::Set(d32, 0xFFFF));
        chance_v = hn::ShiftRight<16>(chance);
      }
      if (m_inverse > 0) {
        EncodeCodes<false>(d, hn::Load(d, m_values.at + j),
                           hn::Set(d, m_inverse), chance_m, new_m->codes + j);
      }
      if constexpr (Rule::kMoments >= 2) {
        if (v_inverse > 0) {
          EncodeCodes<true>(d, hn::Load(d, v_values.at + j),
                            hn::Set(d, v_inverse), chance_v, new_v->codes + j);
        }
      }
    }
    ++old_m;
    ++new_m;
    if constexpr (Rule::kMoments >= 2) {
      ++old_v;
      ++new_v;
    }
  }
  // Who reads them next may be another thread.
  if constexpr (kStreams) hwy::FlushStream();
  return begin;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace castor
HWY_AFTER_NAMESPACE();

#endif  // CASTOR_OFFLOAD_KERNELS_OPTIMIZER_BLOCKS_INL_H_
