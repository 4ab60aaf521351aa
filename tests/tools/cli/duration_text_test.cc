// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/duration_text.h"

#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(DurationTextTest, HasThreeDigits) {
  EXPECT_EQ(FormatDuration(0), "0 ns");
  EXPECT_EQ(FormatDuration(999), "999 ns");
  EXPECT_EQ(FormatDuration(1'000), "1.00 us");
  EXPECT_EQ(FormatDuration(12'345), "12.3 us");
  EXPECT_EQ(FormatDuration(99'960), "100 us");
  EXPECT_EQ(FormatDuration(999'400), "999 us");
  EXPECT_EQ(FormatDuration(999'600), "1.00 ms");
  EXPECT_EQ(FormatDuration(9'994'000), "9.99 ms");
  EXPECT_EQ(FormatDuration(1'234'567'890), "1.23 s");
  EXPECT_EQ(FormatDuration(7'200'000'000'000), "7200 s");
}

}  // namespace
}  // namespace castor
