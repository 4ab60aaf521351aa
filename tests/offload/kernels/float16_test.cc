// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/offload/kernels/kernel_data.h"

namespace castor {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A number from the parts that IEEE 754 says it has.
double FromParts(uint32_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 0x1F);
  const int mantissa = static_cast<int>(bits & 0x3FF);
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent == 31) return mantissa == 0 ? sign * kInfinity : NAN;
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

// Rounds on the number line, in fp64, where the quotient by an fp16's last
// place is exact.
float RoundedByDivision(float value) {
  if (value == 0 || std::isinf(value)) return value;
  const int exponent = std::max(std::ilogb(value), -14);
  const double last_place = std::ldexp(1.0, exponent - 10);
  const double rounded = std::nearbyint(value / last_place) * last_place;
  return std::abs(rounded) >= 65536 ? std::copysign(kInfinity, value)
                                    : static_cast<float>(rounded);
}

TEST(Float16Test, WideningGivesEveryNumberExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = Float16ToFloat(static_cast<uint16_t>(bits));
    const double expected = FromParts(bits);
    if (std::isnan(expected)) {
      EXPECT_EQ(std::bit_cast<uint32_t>(wide), kFloatNaNBits);
      EXPECT_EQ(FloatToFloat16(wide), kFloat16NaNBits);
      continue;
    }
    EXPECT_EQ(std::bit_cast<uint64_t>(static_cast<double>(wide)),
              std::bit_cast<uint64_t>(expected))
        << std::hex << bits;
    EXPECT_EQ(FloatToFloat16(wide), bits);
  }
}

void ExpectNearest(float value) {
  const float rounded = Float16ToFloat(FloatToFloat16(value));
  ASSERT_EQ(std::bit_cast<uint32_t>(rounded),
            std::bit_cast<uint32_t>(RoundedByDivision(value)))
      << std::hexfloat << value;
}

TEST(Float16Test, RoundsToNearestEvenAroundEveryNumberAndTie) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float low = Float16ToFloat(static_cast<uint16_t>(bits));
    const float high = Float16ToFloat(static_cast<uint16_t>(bits + 1));
    const float tie = bits == 0x7BFF ? 65520 : std::midpoint(low, high);
    for (float value : {low, tie}) {
      for (float around : {std::nextafter(value, -kInfinity), value,
                           std::nextafter(value, kInfinity)}) {
        ExpectNearest(around);
        ExpectNearest(-around);
      }
    }
  }
}

TEST(Float16Test, RoundsManyRandomBits) {
  std::mt19937_64 random = SeededGenerator();
  for (int i = 0; i < 200000; ++i) {
    const float value = HostileFloat(random);
    if (std::isnan(value)) {
      EXPECT_EQ(FloatToFloat16(value), kFloat16NaNBits);
    } else {
      ExpectNearest(value);
    }
  }
}

TEST(Float16Test, RoundsPastTheGreatestToInfinity) {
  EXPECT_EQ(FloatToFloat16(65504), 0x7BFF);
  EXPECT_EQ(FloatToFloat16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(FloatToFloat16(65520), 0x7C00);
  EXPECT_EQ(FloatToFloat16(-std::numeric_limits<float>::max()), 0xFC00);
  EXPECT_EQ(FloatToFloat16(-kInfinity), 0xFC00);
}

TEST(Float16Test, KeepsDenormalsAndTheSignOfZero) {
  EXPECT_EQ(FloatToFloat16(-0.0f), 0x8000);
  EXPECT_EQ(FloatToFloat16(0x1p-24f), 0x0001);
  // Half the least denormal is a tie with zero, which is even.
  EXPECT_EQ(FloatToFloat16(0x1p-25f), 0x0000);
  EXPECT_EQ(FloatToFloat16(-std::nextafter(0x1p-25f, 1.0f)), 0x8001);
  EXPECT_EQ(FloatToFloat16(std::numeric_limits<float>::denorm_min()), 0);
}

}  // namespace
}  // namespace castor
