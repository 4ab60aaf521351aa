// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>

#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/float16.h"
#include "tests/offload/kernels/kernel_data.h"
#include "tests/offload/kernels/target_test.h"

namespace castor {
namespace {

template <typename T>
std::vector<const void*> Pointers(const std::vector<OffsetBuffer<T>>& sources) {
  std::vector<const void*> pointers;
  for (const OffsetBuffer<T>& source : sources) {
    pointers.push_back(source.data());
  }
  return pointers;
}

template <typename T>
OffsetBuffer<T> SumOneByOne(const std::vector<OffsetBuffer<T>>& sources) {
  OffsetBuffer<T> sums(sources[0].size(), 0);
  for (int64_t i = 0; i < sums.size(); ++i) {
    volatile float sum = Widen(sources[0].data()[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      sum = sum + Widen(sources[s].data()[i]);
    }
    Round(sum, sums.data() + i);
  }
  return sums;
}

template <typename T>
std::vector<OffsetBuffer<T>> RandomSources(std::mt19937_64& random,
                                           int64_t source_count,
                                           int64_t count) {
  std::vector<OffsetBuffer<T>> sources;
  for (int64_t s = 0; s < source_count; ++s) {
    sources.emplace_back(count, s % 4);
    Draw(random, sources.back());
  }
  return sources;
}

template <typename T>
void ExpectSumsOfTheScalarForm(std::mt19937_64& random) {
  for (int64_t source_count : {1, 2, 3, 5, 8}) {
    for (int64_t count : {0, 1, 3, 7, 8, 15, 16, 17, 33, 64, 131}) {
      auto sources = RandomSources<T>(random, source_count, count);
      const OffsetBuffer<T> expected = SumOneByOne(sources);
      OffsetBuffer<T> to(count, 3);
      {
        const FlushingMode flushing;
        SumInOrder(Pointers(sources), kDTypeOf<T>, count, to.data());
      }
      EXPECT_EQ(to.Bits(), expected.Bits()) << source_count << " " << count;
      // Into each of the sources in turn.
      for (OffsetBuffer<T>& source : sources) {
        OffsetBuffer<T> kept(count, 0);
        std::copy_n(source.data(), count, kept.data());
        SumInOrder(Pointers(sources), kDTypeOf<T>, count, source.data());
        EXPECT_EQ(source.Bits(), expected.Bits()) << source_count;
        std::copy_n(kept.data(), count, source.data());
      }
      if (source_count == 2) {
        AddInto(sources[0].data(), sources[1].data(), kDTypeOf<T>, count);
        EXPECT_EQ(sources[0].Bits(), expected.Bits()) << count;
      }
    }
  }
}

using ReduceTest = TargetTest;
CASTOR_INSTANTIATE_FOR_EACH_TARGET(ReduceTest);

TEST_P(ReduceTest, SumsAsTheScalarFormDoes) {
  std::mt19937_64 random = SeededGenerator();
  for (int round = 0; round < 20; ++round) {
    ExpectSumsOfTheScalarForm<float>(random);
    ExpectSumsOfTheScalarForm<BFloat16>(random);
    ExpectSumsOfTheScalarForm<Float16>(random);
  }
}

template <typename T>
void ExpectScaledAsTheScalarFormDoes(std::mt19937_64& random) {
  for (int64_t count : {0, 1, 3, 7, 8, 15, 16, 17, 33, 64, 131}) {
    for (const float factor : {0.5f, 0.125f, 0.3f}) {
      OffsetBuffer<T> data(count, 1);
      Draw(random, data);
      OffsetBuffer<T> expected(count, 0);
      for (int64_t i = 0; i < count; ++i) {
        volatile float scaled = Widen(data.data()[i]);
        scaled = scaled * factor;
        Round(scaled, expected.data() + i);
      }
      {
        const FlushingMode flushing;
        Scale(data.data(), kDTypeOf<T>, count, factor);
      }
      EXPECT_EQ(data.Bits(), expected.Bits()) << count << " by " << factor;
    }
  }
}

TEST_P(ReduceTest, ScalesAsTheScalarFormDoes) {
  std::mt19937_64 random = SeededGenerator();
  for (int round = 0; round < 20; ++round) {
    ExpectScaledAsTheScalarFormDoes<float>(random);
    ExpectScaledAsTheScalarFormDoes<BFloat16>(random);
    ExpectScaledAsTheScalarFormDoes<Float16>(random);
  }
}

TEST_P(ReduceTest, AnySplitGivesTheSameBits) {
  std::mt19937_64 random = SeededGenerator();
  constexpr int64_t kCount = 150;
  const auto sources = RandomSources<BFloat16>(random, 3, kCount);
  OffsetBuffer<BFloat16> whole(kCount, 0);
  SumInOrder(Pointers(sources), DType::kBF16, kCount, whole.data());
  for (int64_t cut = 0; cut <= kCount; ++cut) {
    OffsetBuffer<BFloat16> to(kCount, 1);
    SumInOrder(Pointers(sources), DType::kBF16, cut, to.data());
    std::vector<const void*> rest;
    for (const auto& source : sources) rest.push_back(source.data() + cut);
    SumInOrder(rest, DType::kBF16, kCount - cut, to.data() + cut);
    ASSERT_EQ(to.Bits(), whole.Bits()) << cut;
  }
}

// Each order of these three gives another sum than its reverse.
TEST_P(ReduceTest, AddsInTheOrderGiven) {
  constexpr int64_t kCount = 37;
  const std::vector<float> great(kCount, 0x1p25f);
  const std::vector<float> one(kCount, 1.0f);
  const std::vector<float> minus_great(kCount, -0x1p25f);
  std::vector<float> to(kCount);
  const auto sum = [&](const std::vector<float>& a, const std::vector<float>& b,
                       const std::vector<float>& c) {
    const std::array<const void*, 3> sources = {a.data(), b.data(), c.data()};
    SumInOrder(sources, DType::kF32, kCount, to.data());
    return to;
  };
  EXPECT_EQ(sum(great, one, minus_great), std::vector<float>(kCount, 0.0f));
  EXPECT_EQ(sum(great, minus_great, one), one);
  EXPECT_EQ(sum(one, great, minus_great), std::vector<float>(kCount, 0.0f));
}

// 2^25 + 2 is a tie that falls back to 2^25, three times; the pair 2 + 2 would
// not.
TEST_P(ReduceTest, DoesNotAddInPairs) {
  constexpr int64_t kCount = 20;
  const std::vector<float> great(kCount, 0x1p25f);
  const std::vector<float> two(kCount, 2.0f);
  std::vector<float> to(kCount);
  const std::array<const void*, 4> sources = {great.data(), two.data(),
                                              two.data(), two.data()};
  SumInOrder(sources, DType::kF32, kCount, to.data());
  EXPECT_EQ(to, great);
}

TEST_P(ReduceTest, RoundsToBFloat16OnlyOnce) {
  constexpr int64_t kCount = 21;
  // 257 has no bf16: a sum rounded at every step would stay at 256.
  const std::vector<uint16_t> great(kCount, FloatToBFloat16(256));
  const std::vector<uint16_t> one(kCount, FloatToBFloat16(1));
  std::vector<uint16_t> to(kCount);
  const std::array<const void*, 3> sources = {great.data(), one.data(),
                                              one.data()};
  SumInOrder(sources, DType::kBF16, kCount, to.data());
  EXPECT_EQ(to, std::vector<uint16_t>(kCount, FloatToBFloat16(258)));
}

TEST_P(ReduceTest, StoresOneNaN) {
  constexpr int64_t kCount = 19;
  const std::vector<float> infinity(kCount, std::bit_cast<float>(0x7F800000));
  const std::vector<float> minus(kCount, std::bit_cast<float>(0xFF800000));
  const std::vector<float> payload(kCount, std::bit_cast<float>(0xFFC12345));
  std::vector<uint32_t> to(kCount);
  for (const auto& other : {minus, payload}) {
    const std::array<const void*, 2> sources = {infinity.data(), other.data()};
    SumInOrder(sources, DType::kF32, kCount, to.data());
    EXPECT_EQ(to, std::vector<uint32_t>(kCount, 0x7FC00000));
  }
}

TEST(ReduceDeathTest, RefusesOtherTypesAndNoSource) {
  float value = 1;
  const std::array<const void*, 1> sources = {&value};
  EXPECT_DEATH(SumInOrder(sources, DType::kF64, 1, &value), "kBF16");
  EXPECT_DEATH(SumInOrder({}, DType::kF32, 1, &value), "empty");
}

}  // namespace
}  // namespace castor
