// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The two formats of 16 bits, and rounding to one of them by chance.

#include "offload/kernels/numbers/float16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/stochastic_rounding.h"
#include "tests/offload/kernels/kernel_data.h"

namespace castor {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Format {
  int least_exponent;
  int mantissa_bits;
  int end;  // 2^end is where infinity begins
};
constexpr Format kBFloat16 = {-126, 7, 128};
constexpr Format kFloat16 = {-14, 10, 16};

// Rounds on the number line, in fp64, where the quotient by a last place is
// exact.
float RoundedByDivision(float value, const Format& format) {
  if (value == 0 || std::isinf(value)) return value;
  const int exponent = std::max(std::ilogb(value), format.least_exponent);
  const double last_place = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double rounded = std::nearbyint(value / last_place) * last_place;
  return std::abs(rounded) >= std::ldexp(1.0, format.end)
             ? std::copysign(kInfinity, value)
             : static_cast<float>(rounded);
}

void ExpectNearest(float value, float rounded, const Format& format) {
  ASSERT_EQ(std::bit_cast<uint32_t>(rounded),
            std::bit_cast<uint32_t>(RoundedByDivision(value, format)))
      << std::hexfloat << value;
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
      ExpectNearest(value, BFloat16ToFloat(FloatToBFloat16(value)), kBFloat16);
    }
  }
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

// A number from the parts that IEEE 754 says it has.
double FromParts(uint32_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 0x1F);
  const int mantissa = static_cast<int>(bits & 0x3FF);
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent == 31) return mantissa == 0 ? sign * kInfinity : NAN;
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
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

TEST(Float16Test, RoundsToNearestEvenAroundEveryNumberAndTie) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float low = Float16ToFloat(static_cast<uint16_t>(bits));
    const float high = Float16ToFloat(static_cast<uint16_t>(bits + 1));
    const float tie = bits == 0x7BFF ? 65520 : std::midpoint(low, high);
    for (float value : {low, tie}) {
      for (float around : {std::nextafter(value, -kInfinity), value,
                           std::nextafter(value, kInfinity)}) {
        ExpectNearest(around, Float16ToFloat(FloatToFloat16(around)), kFloat16);
        ExpectNearest(-around, Float16ToFloat(FloatToFloat16(-around)),
                      kFloat16);
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
      ExpectNearest(value, Float16ToFloat(FloatToFloat16(value)), kFloat16);
    }
  }
}

// Fixed by the definition: a checkpoint made elsewhere continues with the same
// bits only while these hold.
TEST(StochasticRoundingTest, BitsAreTheSameOnEveryMachine) {
  const StochasticKey key = MakeStochasticKey(1, 2, 3);
  EXPECT_EQ(key.first, 0xC0AC7E37);
  EXPECT_EQ(key.second, 0x6AE515C1);
  EXPECT_EQ(StochasticBits(key, 0), 0x91B506BA);
  EXPECT_EQ(StochasticBits(key, 12345), 0x8EA7023B);
  EXPECT_EQ(StochasticBits(key, (uint64_t{7} << 32) + 12345), 0xC96122AB);
}

TEST(StochasticRoundingTest, KeysTellSeedParameterAndStepApart) {
  std::set<std::pair<uint32_t, uint32_t>> keys;
  for (uint64_t seed : {0, 1, 2}) {
    for (uint64_t param : {0, 1, 2}) {
      for (uint64_t step : {0, 1, 2}) {
        const StochasticKey key = MakeStochasticKey(seed, param, step);
        keys.emplace(key.first, key.second);
      }
    }
  }
  EXPECT_EQ(keys.size(), 27);
}

// Each bit of many draws against its neighbours: next element, next step, other
// half. A bit equals another one half of the time; 65536 draws deviate by 128.
TEST(StochasticRoundingTest, BitsDependOnNothingNearby) {
  constexpr int kDraws = 1 << 16;
  const auto expect_half = [](int count, const char* what, int bit) {
    EXPECT_NEAR(count, kDraws / 2, 6 * 128) << what << " " << bit;
  };
  const StochasticKey key = MakeStochasticKey(5, 6, 7);
  const StochasticKey next = MakeStochasticKey(5, 6, 8);
  for (int bit = 0; bit < 32; ++bit) {
    int ones = 0, like_next = 0, like_step = 0, like_half = 0, like_far = 0;
    for (uint64_t i = 0; i < kDraws; ++i) {
      const uint32_t draw = StochasticBits(key, i);
      const auto at = [bit](uint32_t bits) { return bits >> bit & 1; };
      ones += at(draw);
      like_next += at(draw) == at(StochasticBits(key, i + 1));
      like_step += at(draw) == at(StochasticBits(next, i));
      like_half += at(draw) == at(std::rotl(draw, 16));
      like_far += at(draw) == at(StochasticBits(key, i + (uint64_t{1} << 32)));
    }
    expect_half(ones, "ones at", bit);
    expect_half(like_next, "next element", bit);
    expect_half(like_step, "next step", bit);
    expect_half(like_half, "other half", bit);
    expect_half(like_far, "far element", bit);
  }
}

TEST(StochasticRoundingTest, RoundsUpAsOftenAsTheRestIsLarge) {
  std::mt19937_64 random = SeededGenerator();
  for (int i = 0; i < 20; ++i) {
    const float value = HostileFloat(random);
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rest = bits & 0xFFFF;
    uint32_t up = 0;
    for (uint32_t chance = 0; chance < 0x10000; ++chance) {
      const uint16_t rounded = FloatToBFloat16Stochastic(value, chance);
      if (std::isnan(value)) {
        ASSERT_EQ(rounded, kBFloat16NaNBits);
        continue;
      }
      const uint16_t below = static_cast<uint16_t>(bits >> 16);
      ASSERT_TRUE(rounded == below || rounded == below + 1);
      up += rounded == below + 1;
    }
    EXPECT_EQ(up, std::isnan(value) ? 0 : rest);
  }
}

TEST(StochasticRoundingTest, WhatBFloat16HoldsStaysAsItIs) {
  for (uint32_t high = 0; high < 0x10000; ++high) {
    const float value = BFloat16ToFloat(static_cast<uint16_t>(high));
    const uint16_t expected =
        std::isnan(value) ? kBFloat16NaNBits : static_cast<uint16_t>(high);
    for (uint32_t chance : {0u, 0x8000u, 0xFFFFu}) {
      ASSERT_EQ(FloatToBFloat16Stochastic(value, chance), expected);
    }
  }
}

}  // namespace
}  // namespace castor
