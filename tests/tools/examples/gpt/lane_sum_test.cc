// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/lane_sum.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace castor::gpt {
namespace {

TEST(LaneSumTest, AddsEveryTermOnce) {
  for (int64_t count = 0; count < 70; ++count) {
    EXPECT_EQ(LaneSum<double>(
                  count, [](int64_t i) { return static_cast<double>(i + 1); }),
              static_cast<double>(count * (count + 1) / 2));
  }
}

TEST(LaneSumTest, KeepsItsOrder) {
  std::vector<float> x;
  for (int i = 0; i < 100; ++i) x.push_back(std::sin(static_cast<float>(i)));
  float lanes[16] = {};
  for (size_t i = 0; i < x.size(); ++i) lanes[i % 16] += x[i];
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  EXPECT_EQ(
      LaneSum<float>(100, [&](int64_t i) { return x[static_cast<size_t>(i)]; }),
      lanes[0]);
}

}  // namespace
}  // namespace castor::gpt
