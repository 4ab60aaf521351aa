// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "tools/commands/ckpt/ckpt.h"

namespace castor {
namespace {

TEST(TensorDistanceTest, CountsStepsBetweenNumbers) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a = {1.0f, 0.0f, tiny, 2.0f, nan, 5.0f};
  const std::vector<float> b = {1.0f, -0.0f, -tiny, 1.0f, 1.0f, 5.0f};
  TensorDistance distance;
  AddDistance(a.data(), b.data(), DType::kF32, 3, &distance);
  EXPECT_EQ(distance.differing, 2);
  EXPECT_EQ(distance.max_ulp, 3u);  // tiny, +0, -0, -tiny
  AddDistance(a.data() + 3, b.data() + 3, DType::kF32, 3, &distance);
  EXPECT_EQ(distance.elements, 6);
  EXPECT_EQ(distance.differing, 4);
  EXPECT_EQ(distance.nans, 1);
  EXPECT_EQ(distance.max_ulp, uint64_t{1} << 23);  // an octave
  EXPECT_EQ(distance.max_difference, 1.0);
}

TEST(TensorDistanceTest, KnowsNarrowTypesAndOthersByTheirBits) {
  const uint16_t one = 0x3f80;  // bf16
  const uint16_t next = 0x3f81;
  TensorDistance distance;
  AddDistance(&one, &next, DType::kBF16, 1, &distance);
  EXPECT_EQ(distance.max_ulp, 1u);
  EXPECT_EQ(distance.max_difference, 1.0 / 128);
  const int64_t three = 3;
  const int64_t four = 4;
  TensorDistance integers;
  AddDistance(&three, &four, DType::kI64, 1, &integers);
  EXPECT_EQ(integers.differing, 1);
  EXPECT_EQ(integers.max_ulp, 0u);
}

}  // namespace
}  // namespace castor
