// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

#include "offload/kernels/bfloat16.h"
#include "tests/offload/kernels/kernel_data.h"

namespace castor {
namespace {

// Fixed by the definition: a checkpoint made elsewhere continues with the same
// bits only while these hold.
TEST(StochasticRoundingTest, BitsAreTheSameOnEveryMachine) {
  const StochasticKey key = MakeStochasticKey(1, 2, 3);
  EXPECT_EQ(key.first, 0xC0AC7E37);
  EXPECT_EQ(key.second, 0x6AE515C1);
  EXPECT_EQ(StochasticBits(key, 0), 0x74744279);
  EXPECT_EQ(StochasticBits(key, 12345), 0xBFDD9116);
  EXPECT_EQ(StochasticBits(key, (uint64_t{7} << 32) + 12345), 0xA377990B);
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
