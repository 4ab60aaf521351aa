// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/gathered_need.h"

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "collectives/memory/fetch_costs.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor::internal {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::IsEmpty;

// Three chunks of two parameters each, the last of them frozen and of a class
// of its own.
class GatheredNeedTest : public testing::Test {
 protected:
  static ChunkLayout MakeLayout() {
    std::vector<ParamSpec> specs;
    for (int p = 0; p < 6; ++p) {
      specs.push_back({"p" + std::to_string(p), {64}, DType::kF32, p < 4});
    }
    const Elements sizes[] = {Elements(128), Elements(128)};
    return *PackChunks(specs, sizes, PackOptions{});
  }
  std::vector<int64_t> Need(const std::vector<HeldTogether>& held,
                            const std::vector<bool>& direct = {}) {
    const int32_t classes[] = {0, 0, 1};
    return GatheredNeed(layout_, classes, held, direct);
  }
  static ParamId P(int id) { return ParamId(id); }

  ChunkLayout layout_ = MakeLayout();
};

TEST_F(GatheredNeedTest, CountsChunksAndNotParameters) {
  EXPECT_THAT(Need({{{P(0), P(1)}, {}}}), ElementsAre(1, 1));
  EXPECT_THAT(Need({{{P(0), P(2)}, {}}}), ElementsAre(2, 1));
  EXPECT_THAT(Need({{{P(0), P(2), P(4), P(5)}, {}}}), ElementsAre(2, 1));
}

TEST_F(GatheredNeedTest, MomentsAreNotAdded) {
  EXPECT_THAT(Need({{{P(0)}, {}}, {{P(2)}, {}}, {{P(4)}, {}}}),
              ElementsAre(1, 1));
}

TEST_F(GatheredNeedTest, AGradientIsHeldUntilAllOfItsChunkIsListed) {
  // Both gradients of chunk 0, then those of chunk 1.
  EXPECT_THAT(Need({{{}, {P(0)}}, {{}, {P(1)}}, {{}, {P(2)}}, {{}, {P(3)}}}),
              ElementsAre(1, 1));
  // One of chunk 0 comes back while chunk 1 is open.
  EXPECT_THAT(Need({{{}, {P(0), P(1)}}, {{}, {P(2)}}, {{}, {P(1)}}}),
              ElementsAre(2, 1));
  // One of chunk 0 never comes: its slot is held to the end.
  EXPECT_THAT(Need({{{}, {P(0)}}, {{}, {P(2)}}, {{P(0), P(3)}, {P(3)}}}),
              ElementsAre(4, 1));
}

TEST_F(GatheredNeedTest, ParametersUsedWhereTheyAreNeedNoSlot) {
  const std::vector<bool> all(3, true);
  EXPECT_THAT(Need({{{P(0), P(2), P(4)}, {}}}, all), ElementsAre(1, 0))
      << "gradients are reduced in one; the frozen class needs none";
  EXPECT_THAT(Need({{{P(0), P(2)}, {P(0)}}}, {true, false, false}),
              ElementsAre(2, 1));
}

TEST_F(GatheredNeedTest, WithoutDeclarationsTwoParametersAndTwoGradients) {
  EXPECT_THAT(Need({}), ElementsAre(4, 2));
}

TEST_F(GatheredNeedTest, ParametersOfSizeZeroNeedNothing) {
  const std::vector<ParamSpec> specs = {{"empty", {0}, DType::kF32, true},
                                        {"one", {64}, DType::kF32, true}};
  const Elements sizes[] = {Elements(128)};
  const ChunkLayout layout = *PackChunks(specs, sizes, PackOptions{});
  const int32_t classes[] = {0};
  EXPECT_THAT(GatheredNeed(layout, classes, {{{P(0)}, {P(0)}}}, {}),
              ElementsAre(1));
}

// Three chunks of 4 KiB, with parameters on device, host and NVMe.
ChunkLayout ThreeChunks(int world) {
  std::vector<ParamSpec> specs;
  for (int c = 0; c < 3; ++c) {
    specs.push_back({"p" + std::to_string(c), {1024}, DType::kF32, true});
  }
  PackOptions pack;
  pack.world = world;
  const Elements sizes[] = {Elements(1024)};
  return *PackChunks(specs, sizes, pack);
}

std::vector<ChunkHomes> OneOnEachTier() {
  std::vector<ChunkHomes> homes(3);
  for (size_t c = 0; c < 3; ++c) homes[c].fill(kAllTiers[c]);
  return homes;
}

TierModel Measured() {
  TierModel machine;
  machine.host_to_device = LinkModel{1'000'000'000, 10'000};
  machine.nvme_read = LinkModel{500'000'000, 100'000};
  machine.all_gather = RingModel{2'000'000'000, 3'000};
  return machine;
}

TEST(FetchCostsTest, LinksAreCountedWhereNothingWasMeasured) {
  const FetchCosts costs =
      FetchCostsOf(ThreeChunks(2), {3, 2, 0}, OneOnEachTier(), std::nullopt);
  EXPECT_EQ(costs.unit, FetchCostUnit::kLinks);
  EXPECT_THAT(costs.cost, ElementsAre(1, 2, 3));
  EXPECT_THAT(costs.shard_cost, ElementsAre(0, 1, 2));
  EXPECT_EQ(costs.unknown, "");
}

TEST(FetchCostsTest, MeasuredLinksAreAddedUpOnTheWay) {
  const FetchCosts costs =
      FetchCostsOf(ThreeChunks(2), {3, 2, 0}, OneOnEachTier(), Measured());
  EXPECT_EQ(costs.unit, FetchCostUnit::kSeconds);
  const double ring = 3e-6 + 2048 / 2e9;
  const double copy = 10e-6 + 2048 / 1e9;
  const double read = 100e-6 + 4096 / 5e8;  // in whole pages
  EXPECT_THAT(costs.cost, ElementsAre(DoubleEq(ring), DoubleEq(copy + ring),
                                      DoubleEq(read + copy + ring)));
  EXPECT_THAT(costs.shard_cost,
              ElementsAre(0, DoubleEq(copy), DoubleEq(read + copy)));
  // In whole nanoseconds.
  EXPECT_THAT(costs.legs,
              ElementsAre(FetchLegs{0, 0, 4024}, FetchLegs{0, 12'048, 4024},
                          FetchLegs{108'192, 12'048, 4024}));
}

TEST(FetchCostsTest, WholeCopiesNeedNoRing) {
  TierModel machine = Measured();
  machine.all_gather.reset();
  const std::vector<ChunkHomes> homes(3, OneOnEachTier()[1]);
  const FetchCosts costs =
      FetchCostsOf(ThreeChunks(1), {3, 1, 0}, homes, machine);
  EXPECT_EQ(costs.unit, FetchCostUnit::kSeconds);
  EXPECT_DOUBLE_EQ(costs.cost[2], 10e-6 + 4096 / 1e9);
  EXPECT_THAT(costs.shard_cost, IsEmpty()) << "there is nothing to spare";
}

TEST(FetchCostsTest, OneUnknownLinkMakesAllOfThemCounted) {
  TierModel machine = Measured();
  machine.nvme_read.reset();
  machine.all_gather.reset();
  FetchCosts costs =
      FetchCostsOf(ThreeChunks(2), {3, 2, 0}, OneOnEachTier(), machine);
  EXPECT_EQ(costs.unit, FetchCostUnit::kLinks);
  EXPECT_THAT(costs.cost, ElementsAre(1, 2, 3));
  EXPECT_EQ(costs.unknown, "all_gather, nvme_read");
  EXPECT_THAT(costs.legs, IsEmpty());
  // Whole on every rank, and none of it on the drive: nothing is missing.
  const std::vector<ChunkHomes> homes(3, OneOnEachTier()[1]);
  costs = FetchCostsOf(ThreeChunks(2), {1, 2, 0}, homes, machine);
  EXPECT_EQ(costs.unit, FetchCostUnit::kSeconds);
}

}  // namespace
}  // namespace castor::internal
