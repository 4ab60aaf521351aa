// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/numbers/block_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "offload/kernels/convert.h"
#include "tests/offload/kernels/kernel_data.h"

namespace castor {
namespace {

template <bool kPositive>
float Decode(uint8_t code, float scale) {
  return kPositive ? DecodePositive(code, scale) : DecodeValue(code, scale);
}

template <bool kPositive>
uint8_t Encode(float value, float scale, uint32_t chance) {
  const float inverse = InverseOfScale(scale);
  return kPositive ? EncodePositive(value, inverse, chance)
                   : EncodeValue(value, inverse, chance);
}

TEST(BlockCodesTest, CodesRiseWithTheirSharesUpToTheScale) {
  for (int code = 1; code < 256; ++code) {
    const auto at = [](int c) {
      return DecodePositive(static_cast<uint8_t>(c), 1);
    };
    EXPECT_GT(at(code), at(code - 1));
    // Three bits of mantissa: neighbours are an eighth apart at most.
    if (code > 1) {
      EXPECT_LE(at(code) / at(code - 1), 1.125f);
    }
  }
  for (int code = 1; code < 128; ++code) {
    const float value = DecodeValue(static_cast<uint8_t>(code), 1);
    EXPECT_GT(value, DecodeValue(static_cast<uint8_t>(code - 1), 1));
    EXPECT_EQ(DecodeValue(static_cast<uint8_t>(code | 0x80), 1), -value);
  }
  EXPECT_EQ(DecodePositive(255, 3), 3);
  EXPECT_EQ(DecodeValue(127, 3), 3);
  EXPECT_EQ(DecodePositive(0, 3), 0);
  EXPECT_EQ(DecodeValue(0, 3), 0);
  EXPECT_LT(DecodePositive(1, 1), 0x1p-31f);
  EXPECT_LT(DecodeValue(1, 1), 0x1p-15f);
}

template <bool kPositive>
void ExpectEveryCodeComesBack() {
  for (const float scale : {1.0f, 3e-7f, 5e12f, 0x1.fffffep-60f, 3e38f}) {
    for (int code = 0; code < 256; ++code) {
      const auto byte = static_cast<uint8_t>(code);
      const float value = Decode<kPositive>(byte, scale);
      EXPECT_EQ(Encode<kPositive>(value, scale, kNearest), byte) << scale;
    }
  }
}

TEST(BlockCodesTest, AValueOfACodeHasTheCode) {
  ExpectEveryCodeComesBack<true>();
  ExpectEveryCodeComesBack<false>();
}

TEST(BlockCodesTest, NearestIsWithinASixteenthOfAValue) {
  std::mt19937_64 random = SeededGenerator();
  std::uniform_real_distribution<float> exponent(-15.5f, 0);
  for (int i = 0; i < 100'000; ++i) {
    const float value = std::exp2(exponent(random)) * 0.37f;
    EXPECT_NEAR(DecodeValue(Encode<false>(value, 0.37f, kNearest), 0.37f),
                value, value / 16);
    EXPECT_NEAR(DecodePositive(Encode<true>(value, 0.37f, kNearest), 0.37f),
                value, value / 16);
  }
}

// The mean over all random bits is the value, wherever it lies.
TEST(BlockCodesTest, ChanceGivesTheValueOnAverage) {
  for (const float value : {0.9f, 0.5f, 0.0123f, 3e-4f, 1.1e-5f, 2e-6f}) {
    double of_values = 0;
    double of_positive = 0;
    for (uint32_t chance = 0; chance < 65536; ++chance) {
      of_values += DecodeValue(Encode<false>(value, 1, chance), 1) / 65536.0;
      of_positive +=
          DecodePositive(Encode<true>(value, 1, chance), 1) / 65536.0;
    }
    EXPECT_NEAR(of_values, value, 1e-4 * value + 1e-9);
    EXPECT_NEAR(of_positive, value, 1e-4 * value);
  }
}

TEST(BlockCodesTest, TheGreatestIsKeptAtAnyChance) {
  std::mt19937_64 random = SeededGenerator();
  for (int i = 0; i < 100'000; ++i) {
    const auto most = static_cast<uint32_t>(random() % 0x7F7FFFFF + 1);
    const float scale = ScaleOfBlock(most);
    if (FloatOfBits(most) < scale) continue;  // below all scales
    const auto chance = static_cast<uint32_t>(random() % 65536);
    ASSERT_EQ(Encode<false>(scale, scale, chance), 127) << scale;
    ASSERT_EQ(Encode<false>(-scale, scale, chance), 255) << scale;
    ASSERT_EQ(Encode<true>(scale, scale, chance), 255) << scale;
  }
  EXPECT_EQ(ScaleOfBlock(1), 0x1p-126f);
  EXPECT_EQ(ScaleOfBlock(0), 0);
}

TEST(BlockCodesTest, NoPositiveValueBecomesZero) {
  for (const float value : {0x1p-40f, 0x1p-140f, 0x1p-149f}) {
    for (const uint32_t chance : {0u, kNearest, 0xFFFFu}) {
      EXPECT_EQ(Encode<true>(value, 1, chance), 1);
    }
  }
  EXPECT_EQ(Encode<true>(0, 1, 0xFFFF), 0);
  EXPECT_EQ(Encode<false>(0, 1, 0xFFFF), 0);
}

TEST(BlockCodesTest, ABlockWithoutANumberIsNone) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(kBlockValues + 10, 0.5f);
    values[7] = -bad;
    for (const DType dtype : {DType::kBlocks8, DType::kBlocks8Positive}) {
      std::array<CodeBlock, 2> blocks;
      const auto count = static_cast<int64_t>(values.size());
      ConvertFromFloat(values.data(), count, dtype, blocks.data());
      std::vector<float> back(values.size());
      ConvertToFloat(blocks.data(), dtype, count, back.data());
      for (int i = 0; i < kBlockValues; ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(back[static_cast<size_t>(i)]),
                  kFloatNaNBits);
      }
      EXPECT_EQ(back.back(), 0.5f);
    }
  }
}

TEST(BlockCodesTest, BlocksKeepTheirBitsFromFloatToFloat) {
  std::mt19937_64 random = SeededGenerator();
  std::normal_distribution<float> normal(0, 1e-3f);
  constexpr int64_t kCount = 10 * kBlockValues + 3;
  for (const DType dtype : {DType::kBlocks8, DType::kBlocks8Positive}) {
    std::vector<float> values(kCount);
    for (float& value : values) {
      value = normal(random) * normal(random);
      if (dtype == DType::kBlocks8Positive) value = std::abs(value);
    }
    const auto bytes =
        static_cast<size_t>(BytesToHold(Elements(kCount), dtype).count());
    std::vector<CodeBlock> once(bytes / sizeof(CodeBlock));
    std::vector<CodeBlock> twice(once.size());
    ConvertFromFloat(values.data(), kCount, dtype, once.data());
    ConvertToFloat(once.data(), dtype, kCount, values.data());
    ConvertFromFloat(values.data(), kCount, dtype, twice.data());
    EXPECT_EQ(std::memcmp(once.data(), twice.data(), bytes), 0);
    const auto zero = [](uint8_t code) { return code == 0; };
    EXPECT_TRUE(std::all_of(once.back().codes + 3,
                            once.back().codes + kBlockValues, zero));
  }
}

}  // namespace
}  // namespace castor
