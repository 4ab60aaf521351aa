// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/packing_sweep.h"

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/chunk/piece_costs.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

TEST(PackingSweepTest, EqualsBruteForceAtEverySizeOnRandomLists) {
  std::mt19937_64 random(TestSeed(99));
  const int worlds[] = {1, 3, 8};
  const int64_t aligns[] = {64, 128, 192};
  for (int round = 0; round < TestRounds(4000); ++round) {
    const int world = worlds[random() % 3];
    const int64_t align = aligns[random() % 3];
    const int64_t quantum = 128 * world;
    const int64_t min = quantum * (1 + static_cast<int64_t>(random() % 10));
    const int64_t max = min + quantum * static_cast<int64_t>(random() % 16);
    const std::vector<Elements> sizes =
        RandomSizes(random, round % 50 == 0 ? 200 : 25, quantum, 14 * quantum);
    const std::vector<SizePiece> pieces =
        SweepChunkSizes(sizes, Elements(min), Elements(max),
                        {.world = world, .align = Elements(align)});
    SCOPED_TRACE(testing::Message()
                 << "round " << round << " world " << world << " align "
                 << align << " [" << min << ", " << max << "]");
    ASSERT_EQ(pieces.front().from.count(), min);
    for (size_t i = 1; i < pieces.size(); ++i) {
      ASSERT_LT(pieces[i - 1].from, pieces[i].from);
      ASSERT_TRUE(pieces[i - 1].chunks != pieces[i].chunks ||
                  pieces[i - 1].oversize_chunks != pieces[i].oversize_chunks);
    }
    ASSERT_LE(pieces.back().from.count(), max);
    for (int64_t size = min; size <= max; size += quantum) {
      ASSERT_EQ(CostBy(pieces, size), NaiveCostOf(sizes, size, world, align))
          << "at " << size;
    }
  }
}

TEST(PackingSweepDeathTest, NeedsAllowedSizes) {
  EXPECT_DEATH(SweepChunkSizes({}, Elements(0), Elements(128), {}), "CHECK");
  EXPECT_DEATH(SweepChunkSizes({}, Elements(256), Elements(128), {}), "CHECK");
  EXPECT_DEATH(SweepChunkSizes({}, Elements(100), Elements(128), {}), "CHECK");
  EXPECT_DEATH(SweepChunkSizes({}, Elements(128), Elements(200), {}), "CHECK");
}

}  // namespace
}  // namespace castor
