// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <initializer_list>

#include "chunk/base/units.h"
#include "collectives/mpi/internal/exchange.h"
#include "gtest/gtest.h"

namespace castor::internal {
namespace {

// A segment that ended inside an element would be added up wrongly, also where
// the buffer is larger than what one transfer takes.
TEST(ExchangeSegmentTest, IsWholeElementsHoweverLargeTheBuffer) {
  const Bytes mpi((int64_t{1} << 31) - 1);
  for (const Bytes most : {KiB(4), Bytes(5000), Bytes(9999), mpi}) {
    for (const Bytes buffer : {Bytes(0), Bytes(20'001), MiB(4),
                               GiB(4) - Bytes(1), GiB(4), GiB(64)}) {
      for (const int world : {1, 2, 3, 7}) {
        const Bytes segment = SegmentOf(buffer, world, most);
        EXPECT_EQ(segment % Bytes(64), Bytes(0));
        EXPECT_GE(segment, KiB(4));
        EXPECT_LE(segment, most);
      }
    }
  }
  EXPECT_EQ(SegmentOf(GiB(64), 2, Bytes(5000)), Bytes(4992));
  EXPECT_EQ(SegmentOf(GiB(64), 2, mpi), GiB(2) - Bytes(64));
  EXPECT_EQ(SegmentOf(MiB(4), 2, mpi), MiB(2));
}

}  // namespace
}  // namespace castor::internal
