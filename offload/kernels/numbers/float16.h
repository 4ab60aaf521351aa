// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_NUMBERS_FLOAT16_H_
#define CASTOR_OFFLOAD_KERNELS_NUMBERS_FLOAT16_H_

// fp16 (IEEE binary16) against fp32, one value at a time: rounding to nearest
// even, denormals kept, what is too large rounded to infinity, one canonical
// NaN in both directions, since instruction sets differ in what they do to a
// payload. Integer arithmetic, so neither compiler flags nor the floating-point
// mode matter. Pure functions, thread-safe; host and device. Part of the small
// float types (bfloat16.h).

#include <cstdint>

#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/host_device.h"

namespace castor {

inline constexpr uint16_t kFloat16NaNBits = 0x7E00;

// An element of a buffer, for kernels that take several types.
struct Float16 {
  uint16_t bits;
};

// Exact; NaN made canonical.
CASTOR_HOST_DEVICE inline float Float16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7FFF;
  if (magnitude > 0x7C00) return FloatOfBits(kFloatNaNBits);
  if (magnitude == 0x7C00) return FloatOfBits(sign | 0x7F800000);
  if (magnitude >= 0x0400) {  // the exponent's bias grows from 15 to 127
    return FloatOfBits(sign | ((magnitude << 13) + (112u << 23)));
  }
  if (magnitude == 0) return FloatOfBits(sign);
  // A denormal is normal in fp32: its leading one moves up to the place that
  // is not stored, one exponent per place.
  uint32_t mantissa = magnitude << 13;
  uint32_t exponent = 113;
  while ((mantissa & 0x00800000) == 0) {
    mantissa <<= 1;
    --exponent;
  }
  return FloatOfBits(sign | (exponent << 23) | (mantissa & 0x007FFFFF));
}

CASTOR_HOST_DEVICE inline uint16_t FloatToFloat16(float value) {
  const uint32_t bits = BitsOfFloat(value);
  if (IsNaNBits(bits)) return kFloat16NaNBits;
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t rounded = 0;
  if (magnitude >= 0x47800000) {  // 2^16 and more
    rounded = 0x7C00;
  } else if (magnitude >= 0x38800000) {  // 2^-14 and more: normal
    // As in FloatToBFloat16; from 65520 on the carry ends at infinity.
    const uint32_t rebiased = magnitude - (112u << 23);
    rounded = (rebiased + 0x0FFF + ((rebiased >> 13) & 1)) >> 13;
  } else if (magnitude > 0x33000000) {  // over 2^-25, half the least denormal
    const uint32_t mantissa = (magnitude & 0x007FFFFF) | 0x00800000;
    const uint32_t shift = 126 - (magnitude >> 23);  // 14 to 24
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1);
    const uint32_t half = 1u << (shift - 1);
    rounded = kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0);
  }
  return static_cast<uint16_t>(sign | rounded);
}

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_NUMBERS_FLOAT16_H_
