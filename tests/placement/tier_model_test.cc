// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/tier_model.h"

#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

// 1 GB/s and 10 us; a ring whose steps take 5 us.
constexpr LinkModel kLink = {1'000'000'000, 10'000};
constexpr RingModel kRing = {1'000'000'000, 5'000};

TEST(TierModelTest, KnowsNothingThatNobodyDeclared) {
  const TierModel model;
  EXPECT_FALSE(model.host_to_device.has_value());
  EXPECT_FALSE(model.device_to_host.has_value());
  EXPECT_FALSE(model.host_to_device_duplex.has_value());
  EXPECT_FALSE(model.device_to_host_duplex.has_value());
  EXPECT_FALSE(model.nvme_mixed.has_value());
  EXPECT_FALSE(model.memory.has_value());
  EXPECT_FALSE(model.optimizer.has_value());
  EXPECT_FALSE(model.nvme_read.has_value());
  EXPECT_FALSE(model.nvme_write.has_value());
  EXPECT_FALSE(model.all_gather.has_value());
  EXPECT_FALSE(model.reduce_scatter.has_value());
}

TEST(TierModelTest, NamesNumbersThatAreOutOfTheirLimits) {
  TierModel model;
  EXPECT_TRUE(CheckTierModel(model).ok());
  model.nvme_read = LinkModel{kMinBytesPerSecond, 0};
  model.memory = RateModel{kMaxBytesPerSecond};
  EXPECT_TRUE(CheckTierModel(model).ok());
  model.optimizer = RateModel{kMinBytesPerSecond - 1};
  EXPECT_NE(
      CheckTierModel(model).message().find("optimizer moves 999999 bytes"),
      std::string::npos);
  model.optimizer.reset();
  model.all_gather = RingModel{kMaxBytesPerSecond, kMaxLatencyNs + 1};
  EXPECT_NE(CheckTierModel(model).message().find("all_gather has a latency"),
            std::string::npos);
  model.nvme_read->latency_ns = -1;
  EXPECT_EQ(CheckTierModel(model).code(), ErrorCode::kInvalidArgument);
}

TEST(TierModelTest, ATransferTakesItsLatencyAndItsBytes) {
  EXPECT_DOUBLE_EQ(LinkSeconds(kLink, 0, Bytes(0)), 0);
  EXPECT_DOUBLE_EQ(LinkSeconds(kLink, 1, Bytes(0)), 10e-6);
  EXPECT_DOUBLE_EQ(LinkSeconds(kLink, 3, Bytes(500'000'000)), 0.50003);
}

TEST(TierModelTest, ARingTakesAStepForEveryOtherRank) {
  EXPECT_DOUBLE_EQ(RingSeconds(kRing, 1, Bytes(0), 2), 5e-6);
  EXPECT_DOUBLE_EQ(RingSeconds(kRing, 4, Bytes(0), 8), 4 * 7 * 5e-6);
  // Each rank lacks all shards but its own.
  EXPECT_DOUBLE_EQ(RingSeconds(kRing, 0, Bytes(1'000'000'000), 4), 0.75);
  EXPECT_DOUBLE_EQ(RingSeconds(kRing, 2, Bytes(1'000'000'000), 4),
                   2 * 3 * 5e-6 + 0.75);
}

TEST(TierModelTest, OneRankNeedsNoCollective) {
  EXPECT_EQ(RingSeconds(kRing, 100, GiB(1), 1), 0);
}

TEST(TierModelDeathTest, RefusesALinkWithoutASpeed) {
  EXPECT_DEATH(LinkSeconds(LinkModel(), 1, Bytes(1)), "bytes_per_second");
}

}  // namespace
}  // namespace castor
