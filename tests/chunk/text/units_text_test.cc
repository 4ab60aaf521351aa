// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/units_text.h"

#include <cstdint>
#include <limits>
#include <random>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/quantity_text.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

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

TEST(FormatBytesTest, GivesTheNumberAndFromAMebibyteOnASize) {
  EXPECT_EQ(FormatBytes(Bytes(0)), "0 bytes");
  EXPECT_EQ(FormatBytes(Bytes(-512)), "-512 bytes");
  EXPECT_EQ(FormatBytes(Bytes(std::numeric_limits<int64_t>::min())),
            "-9223372036854775808 bytes");
  EXPECT_EQ(FormatBytes(MiB(1) - Bytes(1)), "1048575 bytes");
  EXPECT_EQ(FormatBytes(MiB(1)), "1 MiB");
  EXPECT_EQ(FormatBytes(MiB(1023)), "1023 MiB");
  EXPECT_EQ(FormatBytes(MiB(2560) + Bytes(1)), "2.5 GiB");
}

TEST(FormatBytesUpTest, NamesASizeThatIsEnoughAndHardlyMore) {
  EXPECT_EQ(FormatBytesUp(Bytes(-512)), "-512 bytes");
  EXPECT_EQ(FormatBytesUp(MiB(1) - Bytes(1)), "1048575 bytes");
  EXPECT_EQ(FormatBytesUp(MiB(1)), "1 MiB");
  EXPECT_EQ(FormatBytesUp(MiB(1) + Bytes(1)), "1.01 MiB");
  EXPECT_EQ(FormatBytesUp(GiB(1) - Bytes(1)), "1 GiB");
  EXPECT_EQ(FormatBytesUp(MiB(2560)), "2.5 GiB");
  EXPECT_EQ(FormatBytesUp(Bytes(std::numeric_limits<int64_t>::max())),
            "8388608 TiB");
  std::mt19937_64 random(TestSeed(5));
  for (int round = 0; round < 2000; ++round) {
    const Bytes size(MiB(1).count() +
                     static_cast<int64_t>(random() >> (10 + random() % 33)));
    SCOPED_TRACE(size.count());
    ASSERT_OK_AND_ASSIGN(const Bytes read, ParseSize(FormatBytesUp(size)));
    EXPECT_GE(read, size);
    EXPECT_LE(read - size, size / 100 + Bytes(1));
  }
}

}  // namespace
}  // namespace castor
