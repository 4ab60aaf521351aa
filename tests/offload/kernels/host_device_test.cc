// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/host_device.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/offload/kernels/kernel_data.h"

namespace castor {
namespace {

TEST(HostDeviceTest, BitsThereAndBack) {
  for (uint32_t bits : {0x00000000u, 0x80000000u, 0x3F800000u, 0x00000001u,
                        0x7F800000u, 0xFF7FFFFFu}) {
    EXPECT_EQ(BitsOfFloat(FloatOfBits(bits)), bits);
  }
  EXPECT_EQ(FloatOfBits(0x3F800000), 1.0f);
}

// The root of an fp32 in fp64, rounded once more, is the correctly rounded one.
TEST(HostDeviceTest, SquareRootIsCorrectlyRounded) {
  std::mt19937_64 random = SeededGenerator();
  for (int i = 0; i < 100000; ++i) {
    const float value = std::abs(HostileFloat(random));
    if (std::isnan(value)) continue;
    EXPECT_EQ(SquareRoot(value),
              static_cast<float>(std::sqrt(static_cast<double>(value))));
  }
  EXPECT_TRUE(std::isnan(SquareRoot(-1.0f)));
}

}  // namespace
}  // namespace castor
