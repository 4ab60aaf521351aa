// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/units_text.h"

#include <cstdint>
#include <limits>

#include "chunk/base/units.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(FormatSizeTest, RoundsToTwoDecimalsOfTheLargestUnit) {
  EXPECT_EQ(FormatSize(Bytes(0)), "0 B");
  EXPECT_EQ(FormatSize(Bytes(1023)), "1023 B");
  EXPECT_EQ(FormatSize(KiB(1)), "1 KiB");
  EXPECT_EQ(FormatSize(MiB(416)), "416 MiB");
  EXPECT_EQ(FormatSize(MiB(1536)), "1.5 GiB");
  EXPECT_EQ(FormatSize(MiB(1669)), "1.63 GiB");
  EXPECT_EQ(FormatSize(KiB(1) + Bytes(51)), "1.05 KiB");
  EXPECT_EQ(FormatSize(GiB(1) - Bytes(1)), "1 GiB");
  EXPECT_EQ(FormatSize(MiB(1) - Bytes(1)), "1 MiB");
  EXPECT_EQ(FormatSize(Bytes(std::numeric_limits<int64_t>::max())),
            "8388608 TiB");
}

TEST(FormatSizeExactTest, PicksTheLargestUnitOfWhichItIsWhole) {
  EXPECT_EQ(FormatSizeExact(Bytes(0)), "0B");
  EXPECT_EQ(FormatSizeExact(MiB(416)), "416MiB");
  EXPECT_EQ(FormatSizeExact(MiB(1536)), "1536MiB");
  EXPECT_EQ(FormatSizeExact(Bytes(1'000'000)), "1000000B");
}

TEST(FormatBytesTest, GivesTheNumberAndFromAMebibyteOnTheSize) {
  EXPECT_EQ(FormatBytes(Bytes(0)), "0 bytes");
  EXPECT_EQ(FormatBytes(Bytes(-512)), "-512 bytes");
  EXPECT_EQ(FormatBytes(Bytes(std::numeric_limits<int64_t>::min())),
            "-9223372036854775808 bytes");
  EXPECT_EQ(FormatBytes(MiB(1) - Bytes(1)), "1048575 bytes");
  EXPECT_EQ(FormatBytes(MiB(1)), "1048576 bytes (1 MiB)");
  EXPECT_EQ(FormatBytes(MiB(1023)), "1072693248 bytes (1023 MiB)");
  EXPECT_EQ(FormatBytes(MiB(2560) + Bytes(1)), "2684354561 bytes (2.5 GiB)");
}

}  // namespace
}  // namespace castor
