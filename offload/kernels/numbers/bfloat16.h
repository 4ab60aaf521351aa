// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_NUMBERS_BFLOAT16_H_
#define CASTOR_OFFLOAD_KERNELS_NUMBERS_BFLOAT16_H_

// bf16 against fp32, one value at a time: rounding to nearest even, denormals
// kept, one canonical NaN. Integer arithmetic, so neither compiler flags nor
// the floating-point mode matter. Pure functions, thread-safe; host and device.

#include <cstdint>

#include "offload/kernels/numbers/host_device.h"

namespace castor {

// What every kernel stores where a result is not a number. Which NaN an
// addition returns depends on the order in which a compiler hands it the
// operands, so no payload survives a kernel.
inline constexpr uint32_t kFloatNaNBits = 0x7FC00000;
inline constexpr uint16_t kBFloat16NaNBits = 0x7FC0;

// An element of a buffer, for kernels that take several types.
struct BFloat16 {
  uint16_t bits;
};

CASTOR_HOST_DEVICE inline bool IsNaNBits(uint32_t bits) {
  return (bits & 0x7FFFFFFF) > 0x7F800000;
}

// `value`, or the canonical NaN where it is one.
CASTOR_HOST_DEVICE inline float WithCanonicalNaN(float value) {
  const uint32_t bits = BitsOfFloat(value);
  return FloatOfBits(IsNaNBits(bits) ? kFloatNaNBits : bits);
}

// Exact, NaN payloads included.
CASTOR_HOST_DEVICE inline float BFloat16ToFloat(uint16_t bits) {
  return FloatOfBits(static_cast<uint32_t>(bits) << 16);
}

CASTOR_HOST_DEVICE inline uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = BitsOfFloat(value);
  if (IsNaNBits(bits)) return kBFloat16NaNBits;
  // Just under half a unit of the last kept place, and the rest of the half
  // where that place is odd. A carry into the exponent is the right answer, up
  // to infinity.
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_NUMBERS_BFLOAT16_H_
