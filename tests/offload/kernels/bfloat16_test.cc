// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/bfloat16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/offload/kernels/kernel_data.h"

namespace castor {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rounds on the number line, in fp64, where the quotient by a bf16's last place
// is exact.
float RoundedByDivision(float value) {
  if (value == 0 || std::isinf(value)) return value;
  const int exponent = std::max(std::ilogb(value), -126);
  const double last_place = std::ldexp(1.0, exponent - 7);
  const double rounded = std::nearbyint(value / last_place) * last_place;
  // 2^128 has no fp32 and is where infinity begins.
  return std::abs(rounded) >= std::ldexp(1.0, 128)
             ? std::copysign(kInfinity, value)
             : static_cast<float>(rounded);
}

TEST(BFloat16Test, WideningThenRoundingGivesEveryNumberBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = BFloat16ToFloat(static_cast<uint16_t>(bits));
    EXPECT_EQ(FloatToBFloat16(wide), std::isnan(wide) ? kBFloat16NaNBits : bits)
        << std::hex << bits;
    EXPECT_EQ(std::bit_cast<uint32_t>(wide), bits << 16);
  }
}

TEST(BFloat16Test, RoundsToNearestEvenAroundEveryNumber) {
  std::mt19937_64 random = SeededGenerator();
  for (uint32_t high = 0; high < 0x10000; ++high) {
    const uint32_t any = static_cast<uint32_t>(random() & 0xFFFF);
    for (uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu, any}) {
      const float value = std::bit_cast<float>(high << 16 | low);
      if (std::isnan(value)) continue;
      const float rounded = BFloat16ToFloat(FloatToBFloat16(value));
      ASSERT_EQ(std::bit_cast<uint32_t>(rounded),
                std::bit_cast<uint32_t>(RoundedByDivision(value)))
          << std::hex << high << " " << low;
    }
  }
}

TEST(BFloat16Test, RoundsPastTheGreatestToInfinity) {
  const float greatest = BFloat16ToFloat(0x7F7F);
  const float half_way = std::bit_cast<float>(0x7F7F8000u);
  EXPECT_EQ(FloatToBFloat16(std::nextafter(half_way, 0.0f)), 0x7F7F);
  EXPECT_EQ(FloatToBFloat16(half_way), 0x7F80);
  EXPECT_EQ(FloatToBFloat16(-std::numeric_limits<float>::max()), 0xFF80);
  EXPECT_LT(greatest, half_way);
}

TEST(BFloat16Test, KeepsDenormalsAndTheSignOfZero) {
  EXPECT_EQ(FloatToBFloat16(-0.0f), 0x8000);
  EXPECT_EQ(FloatToBFloat16(BFloat16ToFloat(0x0001)), 0x0001);
  // Half the least denormal is a tie with zero, which is even.
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x00008000u)), 0x0000);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x80008001u)), 0x8001);
}

TEST(BFloat16Test, HasOneNaN) {
  for (uint32_t bits : {0x7F800001u, 0xFF800001u, 0x7FC00000u, 0xFFFFFFFFu,
                        0x7F80FFFFu, 0xFFC00000u}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_EQ(FloatToBFloat16(nan), 0x7FC0);
    EXPECT_EQ(std::bit_cast<uint32_t>(WithCanonicalNaN(nan)), 0x7FC00000u);
  }
  EXPECT_EQ(WithCanonicalNaN(-kInfinity), -kInfinity);
  EXPECT_TRUE(std::signbit(WithCanonicalNaN(-0.0f)));
}

}  // namespace
}  // namespace castor
