// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_NUMBERS_BLOCK_CODES_H_
#define CASTOR_OFFLOAD_KERNELS_NUMBERS_BLOCK_CODES_H_

// Moments in 8 bits: a block of 128 values is the greatest magnitude among
// them, the scale, and a code for each value's share of the scale (the scheme
// of Dettmers et al. 2022, 8-bit optimizers via block-wise quantization, with
// smaller blocks). A share from 0 to 1 is kept as a floating-point number of
// three bits of mantissa, whose codes are computed:
//
//     type of block   sign   codes of a share   least share   error at most
//     values          1 bit  127                2^-15.7       1/16 of a value
//     not negative           255                2^-31.7       1/16 of a value
//
// Code 0 is zero. Rounding takes 16 random bits, up in magnitude for as many of
// their values as is cut off, or the constant kNearest. The greatest value is
// kept exactly, so a block that is decoded and encoded again to the nearest
// keeps its bits, but for values below 2^-126: no scale is less. In a block of
// values that are not negative none but zero becomes zero: a second moment of
// zero would make the next update huge. A block with a NaN or an infinity in it
// is all NaN. Pure functions, thread-safe; host and device.

#include <cstdint>

#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/host_device.h"

namespace castor {

inline constexpr int kBlockValues = 128;

struct CodeBlock {
  float scale;
  uint8_t codes[kBlockValues];
};
static_assert(sizeof(CodeBlock) == 4 + kBlockValues);

namespace block_internal {

// Shares are rounded at this bit of fp32, where three bits of mantissa end.
inline constexpr int kShift = 20;
inline constexpr uint32_t kBitsOfOne = 0x3F800000u >> kShift;
// A code is what the upper bits of its share are above these.
inline constexpr uint32_t kBase = kBitsOfOne - 127;
inline constexpr uint32_t kPositiveBase = kBitsOfOne - 255;
// The least share of either sign that is not zero, in random bits of 16: a
// lesser one is rounded to this one or to zero.
inline constexpr float kLeast = 0x1.4p-16f;
inline constexpr float kChancesOfLeast = 65536 / kLeast;

}  // namespace block_internal

// In place of random bits: to the nearest share, the greater of two as near.
inline constexpr uint32_t kNearest = 0x8000;

// The scale of a block whose magnitudes are, as integers, at most `most`. Of a
// lesser scale than the least normal number there would be no inverse.
CASTOR_HOST_DEVICE inline float ScaleOfBlock(uint32_t most) {
  constexpr uint32_t kLeastNormal = 0x00800000;
  if (most == 0) return 0;
  if (most >= 0x7F800000) return FloatOfBits(kFloatNaNBits);
  return FloatOfBits(most < kLeastNormal ? kLeastNormal : most);
}

// What values are multiplied by in place of a division, which would take longer
// than all else. It is above 1 / scale, so that the greatest value's share is 1
// or more, and is taken for 1. REQUIRES: scale > 0.
CASTOR_HOST_DEVICE inline float InverseOfScale(float scale) {
  return FloatOfBits(BitsOfFloat(1.0f / scale) + 1);
}

CASTOR_HOST_DEVICE inline uint32_t MagnitudeBits(float value) {
  return BitsOfFloat(value) & 0x7FFFFFFF;
}

// The value of a code.
CASTOR_HOST_DEVICE inline float DecodeValue(uint8_t code, float scale) {
  using block_internal::kBase;
  using block_internal::kShift;
  const uint32_t magnitude = code & 0x7F;
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  const uint32_t share = magnitude == 0 ? 0 : (magnitude + kBase) << kShift;
  return FloatOfBits(share | sign) * scale;
}

CASTOR_HOST_DEVICE inline float DecodePositive(uint8_t code, float scale) {
  using block_internal::kPositiveBase;
  using block_internal::kShift;
  return FloatOfBits(code == 0 ? 0 : (code + kPositiveBase) << kShift) * scale;
}

// Of a magnitude, from 0 to 1.
CASTOR_HOST_DEVICE inline float ShareOf(float value, float inverse) {
  const float share = FloatOfBits(MagnitudeBits(value)) * inverse;
  return share < 1 ? share : 1;
}

// The code of a value of a block of which InverseOfScale is this. REQUIRES:
// chance < 2^16; the block has a scale, which is no NaN.
CASTOR_HOST_DEVICE inline uint8_t EncodeValue(float value, float inverse,
                                              uint32_t chance) {
  using namespace block_internal;
  const uint32_t sign = BitsOfFloat(value) >> 24 & 0x80;
  const float share = ShareOf(value, inverse);
  if (share < kLeast) {
    const bool up = static_cast<float>(chance) < share * kChancesOfLeast;
    return static_cast<uint8_t>(sign | (up ? 1u : 0u));
  }
  const uint32_t rounded =
      (BitsOfFloat(share) + (chance << (kShift - 16))) >> kShift;
  return static_cast<uint8_t>(sign | (rounded - kBase));
}

CASTOR_HOST_DEVICE inline uint8_t EncodePositive(float value, float inverse,
                                                 uint32_t chance) {
  using namespace block_internal;
  if (!(value > 0)) return 0;
  const uint32_t rounded =
      (BitsOfFloat(ShareOf(value, inverse)) + (chance << (kShift - 16))) >>
      kShift;
  return static_cast<uint8_t>(rounded > kPositiveBase ? rounded - kPositiveBase
                                                      : 1);
}

// Encodes `count` values, a block of them at most; codes past them become zero.
// `chance(i)`: the random bits of value i.
template <bool kPositive, typename Chance>
void EncodeBlock(const float* values, int64_t count, const Chance& chance,
                 CodeBlock* to) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = most < MagnitudeBits(values[i]) ? MagnitudeBits(values[i]) : most;
  }
  to->scale = ScaleOfBlock(most);
  const bool has_codes = to->scale > 0;
  const float inverse = has_codes ? InverseOfScale(to->scale) : 0;
  for (int64_t i = 0; i < kBlockValues; ++i) {
    if (i >= count || !has_codes) {
      to->codes[i] = 0;
    } else if constexpr (kPositive) {
      to->codes[i] = EncodePositive(values[i], inverse, chance(i));
    } else {
      to->codes[i] = EncodeValue(values[i], inverse, chance(i));
    }
  }
}

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_NUMBERS_BLOCK_CODES_H_
