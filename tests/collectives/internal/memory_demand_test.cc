// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/internal/memory_demand.h"

#include <optional>
#include <vector>

#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/home_policy.h"
#include "tests/support/status_matchers.h"

namespace castor::internal {
namespace {

// Four chunks of one state of 8 KiB each, one slot of 8 KiB for work.
MemoryDemand FourChunks() {
  MemoryDemand demand;
  ChunkStates chunk;
  chunk.device_bytes[0] = chunk.host_bytes[0] = KiB(8);
  demand.chunks.assign(4, chunk);
  demand.serving = KiB(8);
  demand.all_on_device = KiB(40);
  demand.staging_slot = KiB(8);
  return demand;
}

TEST(MemoryDemandTest, SchemesTryWithoutNvmeFirst) {
  const std::vector<HostScheme> without =
      HostSchemes({Bytes(0), Bytes(0), std::nullopt});
  ASSERT_EQ(without.size(), 1u);
  EXPECT_FALSE(without[0].nvme);
  const std::vector<HostScheme> with =
      HostSchemes({Bytes(0), Bytes(0), GiB(1)});
  ASSERT_EQ(with.size(), 3u);
  EXPECT_FALSE(with[0].nvme);
  EXPECT_TRUE(with[1].nvme && with[2].nvme);
  EXPECT_GT(with[1].staging_slots, with[2].staging_slots);
}

TEST(MemoryDemandTest, HomesGetWhatServingAndStagingLeave) {
  const MemoryDemand demand = FourChunks();
  const Budgets budgets{KiB(20), KiB(30), MiB(1)};
  const std::optional<HomeProblem> problem =
      demand.Homes(budgets, {false, 3}, KiB(4));
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->device, KiB(8));
  EXPECT_EQ(problem->host, KiB(6));
  EXPECT_FALSE(problem->nvme) << "the scheme has none";
  EXPECT_EQ(demand.Homes(budgets, {true, 3}, Bytes(0))->nvme, MiB(1));
  EXPECT_FALSE(demand.Homes(budgets, {false, 4}, Bytes(0)));
  EXPECT_FALSE(demand.Homes(budgets, {false, 3}, KiB(13)));
}

TEST(MemoryDemandTest, FitsOnTheDeviceAloneOrTogetherWithOtherTiers) {
  const MemoryDemand demand = FourChunks();
  EXPECT_TRUE(demand.FitsInto({KiB(40), Bytes(0), std::nullopt}));
  EXPECT_FALSE(demand.FitsInto({KiB(40) - Bytes(1), Bytes(0), std::nullopt}));
  EXPECT_TRUE(demand.FitsInto({KiB(8), KiB(24 + 32), std::nullopt}));
  EXPECT_FALSE(
      demand.FitsInto({KiB(8), KiB(24 + 32) - Bytes(1), std::nullopt}));
  EXPECT_TRUE(demand.FitsInto({KiB(8), KiB(40), KiB(32)}));
  EXPECT_FALSE(demand.FitsInto({KiB(8), KiB(40) - Bytes(1), KiB(32)}));
  EXPECT_FALSE(demand.FitsInto({KiB(8) - Bytes(1), MiB(1), MiB(1)}));
  EXPECT_FALSE(demand.FitsInto({Bytes(-1), MiB(1), MiB(1)}));
}

TEST(MemoryDemandTest, NamesTheSmallestRaiseOfEachBudgetThatServesAlone) {
  const MemoryDemand demand = FourChunks();
  EXPECT_EQ(demand.RaisesText({KiB(16), KiB(32), std::nullopt}),
            "raise the device budget by 16384 bytes, or raise the host budget "
            "by 16384 bytes");
  // With a drive the host needs five slots of staging.
  EXPECT_EQ(demand.RaisesText({KiB(8), KiB(40), std::nullopt}),
            "raise the device budget by 16384 bytes, or raise the host budget "
            "by 16384 bytes, or give an NVMe directory with 32768 bytes");
  EXPECT_THAT(demand.RaisesText({KiB(8), KiB(40), KiB(4)}),
              Says("raise the NVMe size by 28672 bytes"));
  // Nothing but a larger device serves where the slots do not fit it.
  EXPECT_EQ(demand.RaisesText({KiB(4), MiB(1), MiB(1)}),
            "raise the device budget by 4096 bytes");
}

}  // namespace
}  // namespace castor::internal
