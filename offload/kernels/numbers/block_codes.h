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
// keeps its bits, but for values below 2^-126. In a block of values that are
// not negative none but zero becomes zero: a second moment of zero would make
// the next update huge. A block with a NaN or an infinity in it is all NaN.
// Pure functions, thread-safe; host and device.

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

// The scale of a block whose magnitudes are, as integers, at most `most`.
CASTOR_HOST_DEVICE inline float ScaleOfBlock(uint32_t most) {
  return FloatOfBits(most >= 0x7F800000 ? kFloatNaNBits : most);
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

// The code of a value of a block of this scale. REQUIRES: chance < 2^16.
CASTOR_HOST_DEVICE inline uint8_t EncodeValue(float value, float scale,
                                              uint32_t chance) {
  using namespace block_internal;
  if (!(scale > 0)) return 0;
  const uint32_t sign = BitsOfFloat(value) >> 24 & 0x80;
  const float share = FloatOfBits(MagnitudeBits(value)) / scale;
  if (share < kLeast) {
    const bool up = static_cast<float>(chance) < share * kChancesOfLeast;
    return static_cast<uint8_t>(sign | (up ? 1u : 0u));
  }
  const uint32_t rounded =
      (BitsOfFloat(share) + (chance << (kShift - 16))) >> kShift;
  return static_cast<uint8_t>(sign | (rounded - kBase));
}

CASTOR_HOST_DEVICE inline uint8_t EncodePositive(float value, float scale,
                                                 uint32_t chance) {
  using namespace block_internal;
  if (!(scale > 0) || !(value > 0)) return 0;
  const uint32_t rounded =
      (BitsOfFloat(value / scale) + (chance << (kShift - 16))) >> kShift;
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
  for (int64_t i = 0; i < kBlockValues; ++i) {
    if (i >= count) {
      to->codes[i] = 0;
    } else if constexpr (kPositive) {
      to->codes[i] = EncodePositive(values[i], to->scale, chance(i));
    } else {
      to->codes[i] = EncodeValue(values[i], to->scale, chance(i));
    }
  }
}

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_NUMBERS_BLOCK_CODES_H_
