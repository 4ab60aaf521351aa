// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_BF16_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_BF16_H_

// bfloat16 as the trainer computes with it: the upper half of an fp32, rounded
// to nearest even. Pure functions, thread-safe.

#include <bit>
#include <cstdint>

namespace castor::gpt {

inline float WidenBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t RoundToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Adding just under half a unit, or exactly half where the kept part is odd,
  // carries into it where it must. That would turn some NaNs into infinity.
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return static_cast<uint16_t>(is_nan ? 0x7FC0 : rounded);
}

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_BF16_H_
