// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/arena_sums.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace castor {
namespace {

RunArenaInfo Arena(int32_t rank, std::string name, int64_t peak, bool locked) {
  RunArenaInfo arena;
  arena.rank = rank;
  arena.name = std::move(name);
  arena.allocator = "castor";
  arena.peak_bytes = peak;
  arena.budget_bytes = 2 * peak;
  arena.refused = rank;
  arena.locked = locked;
  return arena;
}

TEST(ArenaSumsTest, AddsRanksOfOneNameAndSortsByIt) {
  const std::vector<ArenaSum> sums = SumArenas(std::vector<RunArenaInfo>{
      Arena(0, "staging", 10, true), Arena(0, "checkpoint", 7, true),
      Arena(1, "staging", 30, false)});
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums[0].name, "checkpoint");
  EXPECT_EQ(sums[0].ranks, 1);
  EXPECT_TRUE(sums[0].locked);
  EXPECT_EQ(sums[1].name, "staging");
  EXPECT_EQ(sums[1].allocator, "castor");
  EXPECT_EQ(sums[1].ranks, 2);
  EXPECT_EQ(sums[1].peak, 40);
  EXPECT_EQ(sums[1].budget, 80);
  EXPECT_EQ(sums[1].refused, 1);
  EXPECT_FALSE(sums[1].locked);
}

TEST(ArenaSumsTest, NoArenasNoSums) { EXPECT_TRUE(SumArenas({}).empty()); }

}  // namespace
}  // namespace castor
