// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/pinned_arena.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "placement/run_event.h"
#include "tests/support/contracts/pinned_arena_contract.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

INSTANTIATE_TEST_SUITE_P(Own, PinnedArenaContract,
                         testing::Values(&MakePinnedArena));

TEST(OwnPinnedArenaTest, SmallBuffersShareAPageButNoCacheLine) {
  ASSERT_OK_AND_ASSIGN(const auto arena, MakePinnedArena({.budget = KiB(4)}));
  std::vector<PinnedBuffer> held;
  for (int i = 0; i < 64; ++i) {
    ASSERT_OK_AND_ASSIGN(auto buffer, arena->Allocate(Bytes(1 + i), Bytes(1)));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    held.push_back(std::move(buffer));
  }
  EXPECT_THAT(arena->Allocate(Bytes(1), Bytes(1)),
              StatusIs(ErrorCode::kTierFull));
}

TEST(OwnPinnedArenaTest, TellsItsFactsToTheRecord) {
  ASSERT_OK_AND_ASSIGN(const auto arena, MakePinnedArena({.budget = KiB(64)}));
  ASSERT_OK_AND_ASSIGN(const auto buffer, arena->Allocate(Bytes(5000)));
  EXPECT_THAT(arena->Allocate(KiB(64)), StatusIs(ErrorCode::kTierFull));
  const PinnedArenaStats stats = arena->stats();
  const RunArenaInfo info = ArenaInfo(3, "staging", stats);
  EXPECT_EQ(info.rank, 3);
  EXPECT_EQ(info.name, "staging");
  EXPECT_EQ(info.allocator, "castor");
  EXPECT_EQ(info.locked, stats.slab.locked);
  EXPECT_EQ(info.bound, stats.slab.bound);
  EXPECT_EQ(info.budget_bytes, 65536);
  EXPECT_EQ(info.in_use_bytes, 8192);
  EXPECT_EQ(info.peak_bytes, 8192);
  EXPECT_EQ(info.requested_bytes, 5000);
  EXPECT_EQ(info.buffers, 1);
  EXPECT_EQ(info.allocated, 1);
  EXPECT_EQ(info.refused, 1);
  EXPECT_EQ(info.live_bytes, 8192);
  EXPECT_EQ(info.active_bytes, 8192);
  EXPECT_EQ(info.retained_bytes, 0);
  EXPECT_EQ(info.metadata_bytes, stats.metadata.count());
  EXPECT_EQ(info.resident_bytes, 8192 + stats.metadata.count());
}

}  // namespace
}  // namespace castor
