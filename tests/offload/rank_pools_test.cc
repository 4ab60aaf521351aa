// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/rank_pools.h"

#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/event.h"
#include "tests/support/manual_executor.h"
#include "tests/support/private_mount.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

class RankPoolsTest : public testing::Test {
 protected:
  // Two device slots of 4 KiB, three host slots of 8 KiB, four extents of
  // 16 KiB, in budgets that just hold them.
  RankPoolsOptions Options() {
    RankPoolsOptions options;
    options.executor = &executor_;
    options.device_classes = {{KiB(4), 2}};
    options.host_classes = {{KiB(8), 3}};
    options.nvme_classes = {{KiB(16), 4}};
    options.device_budget = KiB(8);
    options.host_budget = KiB(24);
    options.nvme_budget = KiB(64);
    options.nvme_drives = {{dir_.path(), {}}};
    options.log = &log_;
    return options;
  }

  bool DirectoryIsEmpty() const {
    return std::filesystem::is_empty(dir_.path());
  }

  Log log_{[](LogLevel, std::string_view) {}};
  TempDir dir_;
  ManualExecutor executor_;
};

TEST_F(RankPoolsTest, HoldsASlabAFileAndAPoolForEachTier) {
  auto pools = RankPools::Create(Options());
  ASSERT_THAT(pools, IsOk());
  EXPECT_EQ((*pools)->allocations(), 3);
  ASSERT_NE((*pools)->nvme(), nullptr);
  EXPECT_EQ(std::filesystem::file_size((*pools)->nvme()->file()), 64u * 1024);
  for (Tier tier : kAllTiers) {
    TierPool& pool = (*pools)->pool(tier);
    EXPECT_EQ(pool.tier(), tier);
    EXPECT_EQ(pool.stats().reserved, pool.stats().budget) << TierName(tier);
    EXPECT_EQ(pool.stats().in_use, Bytes(0));
  }
  // What the pools hand out is memory of the slabs.
  for (Tier tier : {Tier::kDevice, Tier::kHost}) {
    TierPool& pool = (*pools)->pool(tier);
    while (pool.free_slots(0) > 0) {
      const Slot slot = *pool.Take(0);
      for (int64_t i = 0; i < slot.size.count(); ++i) {
        ASSERT_EQ(slot.data[i], std::byte{0});
        slot.data[i] = std::byte{0xab};
      }
    }
  }
  pools->reset();
  EXPECT_TRUE(DirectoryIsEmpty()) << "the file goes with the pools";
}

TEST_F(RankPoolsTest, TakingSlotsAllocatesNothing) {
  auto pools = *RankPools::Create(Options());
  for (int round = 0; round < 1000; ++round) {
    for (Tier tier : kAllTiers) {
      const Slot slot = *pools->pool(tier).Take(0);
      pools->pool(tier).Give(slot, Event());
    }
  }
  EXPECT_EQ(pools->allocations(), 3);
}

TEST_F(RankPoolsTest, MakesNothingForATierWithoutSlots) {
  RankPoolsOptions options = Options();
  options.nvme_classes.clear();
  options.nvme_drives = {{"/does/not/exist", {}}};
  options.host_classes = {{KiB(8), 0}};
  auto pools = RankPools::Create(std::move(options));
  ASSERT_THAT(pools, IsOk());
  EXPECT_EQ((*pools)->allocations(), 1);
  EXPECT_EQ((*pools)->nvme(), nullptr);
  EXPECT_THAT((*pools)->pool(Tier::kHost).Take(0).status(),
              StatusIs(ErrorCode::kTierFull));
}

TEST_F(RankPoolsTest, ABudgetThatIsTooSmallIsRefusedBeforeAnythingIsMade) {
  for (Tier tier : kAllTiers) {
    RankPoolsOptions options = Options();
    // No machine has the memory: it would be missed if it were asked for first.
    options.device_classes = {{GiB(1) * (1 << 20), 1}};
    options.device_budget = GiB(1) * (1 << 20);
    Bytes& budget = tier == Tier::kDevice ? options.device_budget
                    : tier == Tier::kHost ? options.host_budget
                                          : options.nvme_budget;
    budget -= Bytes(1);
    EXPECT_THAT(RankPools::Create(std::move(options)).status(),
                StatusIs(ErrorCode::kInfeasible,
                         Says(std::string(TierName(tier)) + " pool")));
    EXPECT_TRUE(DirectoryIsEmpty());
  }
}

TEST_F(RankPoolsTest, ClassesThatOverflowAreRefused) {
  for (Tier tier : kAllTiers) {
    RankPoolsOptions options = Options();
    auto& classes = tier == Tier::kDevice ? options.device_classes
                    : tier == Tier::kHost ? options.host_classes
                                          : options.nvme_classes;
    classes = {{GiB(int64_t{1} << 32), std::numeric_limits<int32_t>::max()}};
    EXPECT_THAT(RankPools::Create(std::move(options)).status(),
                StatusIs(ErrorCode::kInfeasible, Says("64 bits")));
  }
  EXPECT_TRUE(DirectoryIsEmpty());
}

TEST_F(RankPoolsTest, MemoryThatTheMachineLacksLeavesNoFileBehind) {
  for (Tier tier : {Tier::kDevice, Tier::kHost}) {
    RankPoolsOptions options = Options();
    auto& classes =
        tier == Tier::kDevice ? options.device_classes : options.host_classes;
    Bytes& budget =
        tier == Tier::kDevice ? options.device_budget : options.host_budget;
    classes = {{GiB(1) * (1 << 20), 1}};
    budget = GiB(1) * (1 << 20);
    EXPECT_THAT(RankPools::Create(std::move(options)).status(),
                StatusIs(ErrorCode::kUnavailable, Says("budget")));
    EXPECT_TRUE(DirectoryIsEmpty());
  }
}

TEST_F(RankPoolsTest, AMissingDirectoryIsNamed) {
  RankPoolsOptions options = Options();
  options.nvme_drives = {{dir_.path() / "missing", {}}};
  EXPECT_THAT(RankPools::Create(std::move(options)).status(),
              StatusIs(ErrorCode::kUnavailable, Says("missing")));
  EXPECT_TRUE(DirectoryIsEmpty());
}

TEST_F(RankPoolsTest, AFileInPlaceOfTheDirectoryIsRefused) {
  RankPoolsOptions options = Options();
  options.nvme_drives = {{"/dev/null", {}}};
  EXPECT_FALSE(RankPools::Create(std::move(options)).ok());
}

TEST_F(RankPoolsTest, ADiskThatIsTooSmallIsRefusedWithNumbersAndLeftEmpty) {
  const auto result = RunWithPrivateMount(
      {.type = "tmpfs", .options = "size=1m"}, dir_.path(),
      [&]() -> std::string {
        RankPoolsOptions options = Options();
        options.nvme_classes = {{KiB(16), 128}};
        options.nvme_budget = MiB(2);
        auto full = RankPools::Create(std::move(options));
        if (full.ok()) return "2 MiB fit into 1 MiB";
        if (full.status().code() != ErrorCode::kUnavailable ||
            full.status().message().find("2097152 B") == std::string::npos) {
          return full.status().ToString();
        }
        if (!DirectoryIsEmpty()) return "something is left";
        auto fits = RankPools::Create(Options());
        if (!fits.ok()) return fits.status().ToString();
        fits->reset();
        return DirectoryIsEmpty() ? "" : "something is left";
      });
  if (!result.skipped.empty()) GTEST_SKIP() << result.skipped;
  EXPECT_EQ(result.failure, "");
}

TEST_F(RankPoolsTest, TwoRanksShareADirectory) {
  auto one = *RankPools::Create(Options());
  auto two = *RankPools::Create(Options());
  EXPECT_NE(one->nvme()->file(), two->nvme()->file());
  one.reset();
  EXPECT_TRUE(std::filesystem::exists(two->nvme()->file()));
}

}  // namespace
}  // namespace castor
