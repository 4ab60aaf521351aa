// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/reference_norm.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "offload/kernels/exact_sum.h"
#include "tests/support/test_seed.h"

namespace castor::gpt {
namespace {

double Reference(const std::vector<std::vector<float>>& gradients) {
  LongSum sum;
  for (const auto& gradient : gradients) sum.AddSquares(gradient);
  return sum.Total();
}

double Castor(const std::vector<std::vector<float>>& gradients) {
  ExactSum sum;
  for (const auto& gradient : gradients) {
    AddSquares(gradient.data(), DType::kF32,
               static_cast<int64_t>(gradient.size()), &sum);
  }
  return sum.Total();
}

TEST(ReferenceNormTest, OfNothingIsZero) {
  EXPECT_EQ(Reference({}), 0);
  EXPECT_EQ(Reference({{}, {0, 0}}), 0);
}

TEST(ReferenceNormTest, IsExactWhereFloatsAreNot) {
  // 2^100 + 2^-60 - the second is far below the first's last place - twice the
  // half unit that a rounding after each block would lose.
  const float big = std::ldexp(1.0f, 50);
  const float half_unit = std::ldexp(1.0f, 23);
  EXPECT_EQ(Reference({{big}, {half_unit}, {half_unit}, {half_unit}}),
            std::ldexp(1.0, 100) + std::ldexp(1.0, 48));
}

TEST(ReferenceNormTest, SaysSoWhenAGradientIsNotFinite) {
  EXPECT_EQ(Reference({{1, std::numeric_limits<float>::infinity()}}),
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(Reference({{1}, {std::numeric_limits<float>::quiet_NaN()}}),
            std::numeric_limits<double>::infinity());
}

TEST(ReferenceNormTest, EqualsCastorsBitByBit) {
  std::mt19937_64 random(TestSeed(11));
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::vector<float>> gradients(random() % 4 + 1);
    for (auto& gradient : gradients) {
      gradient.resize(random() % 300);
      // All finite floats, denormals too; sums of squares may not overflow.
      for (float& g : gradient) {
        g = std::bit_cast<float>(static_cast<uint32_t>(random()));
        if (!std::isfinite(g)) g = 1;
      }
    }
    ASSERT_EQ(Reference(gradients), Castor(gradients)) << "round " << round;
  }
}

}  // namespace
}  // namespace castor::gpt
