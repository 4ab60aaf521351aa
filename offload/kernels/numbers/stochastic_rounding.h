// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_NUMBERS_STOCHASTIC_ROUNDING_H_
#define CASTOR_OFFLOAD_KERNELS_NUMBERS_STOCHASTIC_ROUNDING_H_

// Rounding to bf16 up or down by chance, so that the expected value is the
// value: a moment in bf16 then still gathers what is smaller than half a unit
// of its last place (Gupta et al. 2015). The chance is no state: 32 bits are
// computed from (seed, parameter, step, element), so an element draws the same
// wherever and in whatever order it is updated. Pure functions, thread-safe.
// Part of the small float types (bfloat16.h).

#include <cstdint>

#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/host_device.h"

namespace castor {

// What is the same for all elements of a parameter in a step.
struct StochasticKey {
  uint32_t first = 0;
  uint32_t second = 0;
};

namespace stochastic_internal {

inline constexpr uint32_t kMultiplier1 = 0x7FEB352D;
inline constexpr uint32_t kMultiplier2 = 0x846CA68B;
inline constexpr uint32_t kHighMultiplier = 0x9E3779B1;

// An output of splitmix64 for the sum.
inline uint64_t Absorb(uint64_t state, uint64_t value) {
  state += value + 0x9E3779B97F4A7C15;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
  return state ^ (state >> 31);
}

}  // namespace stochastic_internal

inline StochasticKey MakeStochasticKey(uint64_t seed, uint64_t param,
                                       uint64_t step) {
  using stochastic_internal::Absorb;
  const uint64_t key = Absorb(Absorb(Absorb(0, seed), param), step);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

// The 32 random bits of element `index` of the parameter: the lower 16 round
// the first moment, the upper 16 the second. Xor-shifts and odd multipliers, in
// which every bit of the index changes half of the output's (constants of
// Wellons' search for low bias), between the halves of a 64-bit key.
CASTOR_HOST_DEVICE inline uint32_t StochasticBits(StochasticKey key,
                                                  uint64_t index) {
  const uint32_t far =
      static_cast<uint32_t>(index >> 32) * stochastic_internal::kHighMultiplier;
  uint32_t x = static_cast<uint32_t>(index) ^ (key.first + far);
  x = (x ^ (x >> 16)) * stochastic_internal::kMultiplier1;
  x ^= key.second + far;
  x = (x ^ (x >> 15)) * stochastic_internal::kMultiplier2;
  return x ^ (x >> 16);
}

// `value` rounded up in magnitude for as many of the 65536 values of `chance`
// as the part cut off is 65536ths of a unit of the last kept place. What bf16
// holds stays as it is, zero and infinity included; NaN is made canonical. From
// the greatest bf16 up, infinity is the next value. REQUIRES: chance < 2^16.
CASTOR_HOST_DEVICE inline uint16_t FloatToBFloat16Stochastic(float value,
                                                             uint32_t chance) {
  const uint32_t bits = BitsOfFloat(value);
  if (IsNaNBits(bits)) return kBFloat16NaNBits;
  return static_cast<uint16_t>((bits + chance) >> 16);
}

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_NUMBERS_STOCHASTIC_ROUNDING_H_
