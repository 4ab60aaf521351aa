// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/run_totals.h"

#include <vector>

#include "chunk/base/units.h"
#include "gtest/gtest.h"

namespace castor::gpt {
namespace {

TEST(RunTotalsTest, TakesTheLargestPeakAndAddsWhatMoved) {
  std::vector<EngineStats> ranks(2);
  ranks[0].tiers[0] = {MiB(8), MiB(1), MiB(5)};
  ranks[1].tiers[0] = {MiB(8), MiB(2), MiB(3)};
  ranks[0].moved[1][0] = MiB(4);
  ranks[1].moved[1][0] = MiB(6);
  ranks[0].stall_ns = 1'000'000'000;
  ranks[1].stall_ns = 500'000'000;
  const EngineStats all = Combined(ranks);
  EXPECT_EQ(all.tiers[0].peak, MiB(5));
  EXPECT_EQ(all.tiers[0].in_use, MiB(2));
  EXPECT_EQ(all.moved[1][0], MiB(10));
  EXPECT_EQ(StalledSeconds(all), 1.5);
  TrainOptions options;
  options.ranks = 2;
  TrainOutcome outcome;
  EXPECT_EQ(StalledShare(options, outcome, all), 0);
  outcome.seconds = 3;
  EXPECT_EQ(StalledShare(options, outcome, all), 0.25);
}

TEST(RunTotalsTest, AnArenaIsLockedWhereAllAre) {
  std::vector<PinnedArenaStats> arenas(2);
  arenas[0].slab.locked = true;
  arenas[0].peak = MiB(1);
  arenas[1].peak = MiB(2);
  const PinnedArenaStats all = Combined(arenas);
  EXPECT_FALSE(all.slab.locked);
  EXPECT_EQ(all.peak, MiB(3));
}

TEST(RunTotalsTest, AddsLinksAndTokens) {
  std::vector<RankLinks> ranks(2);
  ranks[0].nvme_read = {.transfers = 1, .bytes = MiB(1), .busy_ns = 5};
  ranks[1].nvme_read = {.transfers = 2, .bytes = MiB(2), .busy_ns = 7};
  const RankLinks links = Combined(ranks);
  EXPECT_EQ(links.nvme_read.transfers, 3);
  EXPECT_EQ(links.nvme_read.bytes, MiB(3));
  EXPECT_DOUBLE_EQ(BusySeconds(links.nvme_read), 12e-9);
  EXPECT_EQ(TokensPerSecond(40, 2), 20);
  EXPECT_EQ(TokensPerSecond(40, 0), 0);
}

TEST(RunTotalsTest, OnlyADriveOfUnknownSizeHasNoLimit) {
  TrainOptions options;
  EXPECT_TRUE(HasLimit(options, Tier::kDevice));
  options.engine.nvme = {{.directory = "/drive", .size = {}}};
  EXPECT_FALSE(HasLimit(options, Tier::kNvme));
  options.engine.nvme[0].size = GiB(1);
  EXPECT_TRUE(HasLimit(options, Tier::kNvme));
}

TEST(RunTotalsTest, ADigestHasSixteenDigits) {
  EXPECT_EQ(Hex(0xABC), "0000000000000abc");
}

}  // namespace
}  // namespace castor::gpt
