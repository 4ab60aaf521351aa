// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/float16.h"
#include "tests/offload/kernels/kernel_data.h"
#include "tests/offload/kernels/target_test.h"
#include "tests/support/test_rounds.h"

namespace castor {
namespace {

using ConvertTest = TargetTest;
CASTOR_INSTANTIATE_FOR_EACH_TARGET(ConvertTest);

TEST_P(ConvertTest, WidensEveryNumberExactly) {
  std::vector<uint16_t> low(0x10000);
  for (size_t i = 0; i < low.size(); ++i) low[i] = static_cast<uint16_t>(i);
  std::vector<float> brain(low.size()), half(low.size());
  {
    const FlushingMode flushing;
    ConvertToFloat(low.data(), DType::kBF16, 0x10000, brain.data());
    ConvertToFloat(low.data(), DType::kF16, 0x10000, half.data());
  }
  for (size_t i = 0; i < low.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(brain[i]), i << 16);
    ASSERT_EQ(std::bit_cast<uint32_t>(half[i]),
              std::bit_cast<uint32_t>(Float16ToFloat(low[i])))
        << std::hex << i;
  }
}

// Every fp16, the ties above it, and what is next to each.
TEST_P(ConvertTest, RoundsToFloat16AroundEveryNumberAndTie) {
  std::vector<float> from;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t wide =
        std::bit_cast<uint32_t>(Float16ToFloat(static_cast<uint16_t>(bits)));
    for (uint32_t above : {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u}) {
      from.push_back(std::bit_cast<float>(wide + above));
    }
    from.push_back(std::bit_cast<float>(wide - 1));
  }
  const auto count = std::ssize(from);
  std::vector<uint16_t> low(from.size());
  {
    const FlushingMode flushing;
    ConvertFromFloat(from.data(), count, DType::kF16, low.data());
  }
  for (size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(low[i], FloatToFloat16(from[i]))
        << std::hex << std::bit_cast<uint32_t>(from[i]);
  }
}

TEST_P(ConvertTest, GivesTheBitsOfTheScalarFormAtEveryLengthAndOffset) {
  std::mt19937_64 random = SeededGenerator();
  for (int64_t count = 0; count < 70; ++count) {
    for (int64_t offset = 0; offset < 5; ++offset) {
      OffsetBuffer<float> from(count, offset);
      Fill(random, count, from.data());
      OffsetBuffer<uint16_t> low(count, 4 - offset);
      OffsetBuffer<uint16_t> half(count, 4 - offset);
      OffsetBuffer<float> full(count, 4 - offset);
      {
        const FlushingMode flushing;
        ConvertFromFloat(from.data(), count, DType::kBF16, low.data());
        ConvertFromFloat(from.data(), count, DType::kF16, half.data());
        ConvertFromFloat(from.data(), count, DType::kF32, full.data());
      }
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(low.data()[i], FloatToBFloat16(from.data()[i]));
        ASSERT_EQ(half.data()[i], FloatToFloat16(from.data()[i]));
        ASSERT_EQ(std::bit_cast<uint32_t>(full.data()[i]),
                  std::bit_cast<uint32_t>(WithCanonicalNaN(from.data()[i])));
      }
      OffsetBuffer<float> wide(count, offset);
      ConvertToFloat(low.data(), DType::kBF16, count, wide.data());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(wide.data()[i]),
                  std::bit_cast<uint32_t>(BFloat16ToFloat(low.data()[i])));
      }
      ConvertToFloat(half.data(), DType::kF16, count, wide.data());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(wide.data()[i]),
                  std::bit_cast<uint32_t>(Float16ToFloat(half.data()[i])));
      }
    }
  }
}

TEST_P(ConvertTest, RoundsManyRandomBitsAsTheScalarFormDoes) {
  std::mt19937_64 random = SeededGenerator();
  constexpr int64_t kCount = 1 << 16;
  std::vector<float> from(kCount);
  for (float& value : from) {
    value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  }
  std::vector<uint16_t> brain(kCount), half(kCount);
  ConvertFromFloat(from.data(), kCount, DType::kBF16, brain.data());
  ConvertFromFloat(from.data(), kCount, DType::kF16, half.data());
  for (int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(brain[i], FloatToBFloat16(from[i])) << std::hexfloat << from[i];
    ASSERT_EQ(half[i], FloatToFloat16(from[i])) << std::hexfloat << from[i];
  }
}

// So many that they are stored past the caches, from any alignment, and nothing
// else is.
TEST_P(ConvertTest, WidensLargeRangesToTheSameBits) {
  std::mt19937_64 random = SeededGenerator();
  constexpr int64_t kCount = (1 << 20) + 77;
  std::vector<uint16_t> low(kCount);
  for (uint16_t& bits : low) bits = static_cast<uint16_t>(random());
  std::vector<float> wide(kCount + 32);
  int combination = 0;
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (size_t offset : {0, 1, 5}) {
      if (combination++ % std::min(TestStride(), 4) != 0) continue;
      std::fill(wide.begin(), wide.end(), 7.0f);
      ConvertToFloat(low.data(), dtype, kCount, wide.data() + offset);
      for (size_t i = 0; i < low.size(); ++i) {
        const float expected = dtype == DType::kBF16 ? BFloat16ToFloat(low[i])
                                                     : Float16ToFloat(low[i]);
        ASSERT_EQ(std::bit_cast<uint32_t>(wide[offset + i]),
                  std::bit_cast<uint32_t>(expected))
            << i;
      }
      EXPECT_EQ(std::count(wide.begin(), wide.end(), 7.0f),
                32 + std::count(wide.begin() + offset,
                                wide.begin() + offset + kCount, 7.0f));
    }
  }
}

TEST(ConvertFloatTest, CopiesFloatsToFloatsBitByBit) {
  const std::vector<uint32_t> bits = {0x7F800001, 0x80000000, 0x00000001,
                                      0xFFC12345};
  std::vector<uint32_t> to(bits.size());
  ConvertToFloat(bits.data(), DType::kF32, 4,
                 reinterpret_cast<float*>(to.data()));
  EXPECT_EQ(to, bits);
}

TEST(ConvertDeathTest, RefusesOtherTypes) {
  float value = 1;
  uint16_t low = 0;
  EXPECT_DEATH(ConvertToFloat(&low, DType::kI16, 1, &value), "kF16");
  EXPECT_DEATH(ConvertFromFloat(&value, 1, DType::kI16, &low), "kBF16");
}

TEST_P(ConvertTest, KeepsEveryByteAndClampsWhatIsNone) {
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  std::vector<float> wide(bytes.size());
  ConvertToFloat(bytes.data(), DType::kU8, 256, wide.data());
  for (size_t i = 0; i < wide.size(); ++i) {
    ASSERT_EQ(wide[i], static_cast<float>(i));
  }
  std::vector<uint8_t> back(bytes.size());
  ConvertFromFloat(wide.data(), 256, DType::kU8, back.data());
  EXPECT_EQ(back, bytes);
  const float odd[] = {-1.0F,  0.4F,     0.6F,      254.6F,
                       256.0F, INFINITY, -INFINITY, NAN};
  ConvertFromFloat(odd, 8, DType::kU8, back.data());
  EXPECT_THAT(std::vector<int>(back.begin(), back.begin() + 8),
              testing::ElementsAre(0, 0, 1, 255, 255, 255, 0, 0));
}

}  // namespace
}  // namespace castor
