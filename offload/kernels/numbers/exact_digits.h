// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_NUMBERS_EXACT_DIGITS_H_
#define CASTOR_OFFLOAD_KERNELS_NUMBERS_EXACT_DIGITS_H_

// How a double falls on the digits of an ExactSum (exact_sum.h): 32 bits each,
// least significant first, in units of the least denormal. The same code on
// host and device. Pure functions, thread-safe. Part of the exact sums
// (exact_sum.h).

#include <cstdint>

#include "offload/kernels/numbers/host_device.h"

namespace castor {

inline constexpr int kExactDigitBits = 32;
inline constexpr int kDoubleMantissaBits = 52;  // as stored
inline constexpr int kDoubleInfiniteExponent = 2047;

// What is added to three neighbouring digits, each below 2^32.
struct ExactAddend {
  bool finite = false;  // else the rest is of no meaning
  int digit = 0;        // where `low` goes
  uint64_t low = 0;
  uint64_t middle = 0;
  uint64_t high = 0;
};

// `bits` of a double that is not negative, or infinite, or not a number.
CASTOR_HOST_DEVICE inline ExactAddend SplitIntoDigits(uint64_t bits) {
  const int exponent = static_cast<int>(bits >> kDoubleMantissaBits) & 0x7FF;
  uint64_t mantissa = bits & ((uint64_t{1} << kDoubleMantissaBits) - 1);
  ExactAddend addend;
  if (exponent == kDoubleInfiniteExponent) return addend;
  // In units of the least denormal the value is mantissa * 2^place.
  int place = 0;
  if (exponent != 0) {
    mantissa |= uint64_t{1} << kDoubleMantissaBits;
    place = exponent - 1;
  }
  const int shift = place % kExactDigitBits;
  const uint64_t low = mantissa << shift;
  addend.finite = true;
  addend.digit = place / kExactDigitBits;
  addend.low = low & 0xFFFFFFFF;
  addend.middle = low >> kExactDigitBits;
  addend.high = (mantissa >> 1) >> (63 - shift);
  return addend;
}

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_NUMBERS_EXACT_DIGITS_H_
