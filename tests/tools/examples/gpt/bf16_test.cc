// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/bf16.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace castor::gpt {
namespace {

TEST(Bf16Test, EveryBf16SurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float wide = WidenBf16(static_cast<uint16_t>(bits));
    if (std::isnan(wide)) {
      EXPECT_EQ(RoundToBf16(wide), 0x7FC0);
    } else {
      ASSERT_EQ(RoundToBf16(wide), bits);
    }
  }
}

TEST(Bf16Test, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(RoundToBf16(1.0f + 1.0f / 256), 0x3F80);      // a tie, down to even
  EXPECT_EQ(RoundToBf16(1.0f + 3.0f / 256), 0x3F82);      // a tie, up to even
  EXPECT_EQ(RoundToBf16(1.0f + 1.01f / 256), 0x3F81);     // above the tie
  EXPECT_EQ(RoundToBf16(-(1.0f + 1.01f / 256)), 0xBF81);  // below it
  EXPECT_EQ(RoundToBf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(RoundToBf16(std::numeric_limits<float>::denorm_min()), 0);
}

}  // namespace
}  // namespace castor::gpt
