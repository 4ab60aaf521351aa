// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/shards/rank_pools.h"

#include <cstring>
#include <filesystem>
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
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "offload/nvme/store/nvme_store.h"
#include "tests/support/fakes/manual_executor.h"
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
  ASSERT_OK_AND_ASSIGN(auto pools, RankPools::Create(Options()));
  EXPECT_EQ(pools->allocations(), 3);
  ASSERT_NE(pools->nvme(), nullptr);
  EXPECT_EQ(std::filesystem::file_size(pools->nvme()->file()), 64u * 1024);
  for (Tier tier : kAllTiers) {
    TierPool& pool = pools->pool(tier);
    EXPECT_EQ(pool.tier(), tier);
    EXPECT_EQ(pool.stats().reserved, pool.stats().budget) << TierName(tier);
    EXPECT_EQ(pool.stats().in_use, Bytes(0));
  }
  // What the pools hand out is memory of the slabs.
  for (Tier tier : {Tier::kDevice, Tier::kHost}) {
    TierPool& pool = pools->pool(tier);
    while (pool.free_slots(0) > 0) {
      const Slot slot = *pool.Take(0);
      for (int64_t i = 0; i < slot.size.count(); ++i) {
        ASSERT_EQ(slot.data[i], std::byte{0});
        slot.data[i] = std::byte{0xab};
      }
    }
  }
  pools.reset();
  EXPECT_TRUE(DirectoryIsEmpty()) << "the file goes with the pools";
}

TEST_F(RankPoolsTest, MakesNothingForATierWithoutSlots) {
  RankPoolsOptions options = Options();
  options.nvme_classes.clear();
  options.nvme_drives = {{"/does/not/exist", {}}};
  options.host_classes = {{KiB(8), 0}};
  ASSERT_OK_AND_ASSIGN(auto pools, RankPools::Create(std::move(options)));
  EXPECT_EQ(pools->allocations(), 1);
  EXPECT_EQ(pools->nvme(), nullptr);
  EXPECT_THAT(pools->pool(Tier::kHost).Take(0).status(),
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

TEST_F(RankPoolsTest, SparePlacesAreHadOnlyWhereMuchMemoryStaysAvailable) {
  RankPoolsOptions options = Options();
  options.host_spare = KiB(8);
  EXPECT_THAT(RankPools::Create(options).status(), IsOk());
  options.host_spare = GiB(1) * (1 << 20);
  EXPECT_THAT(RankPools::Create(std::move(options)).status(),
              StatusIs(ErrorCode::kUnavailable));
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

// What may change about a rank's memory between steps, and its end.

class RankPoolsChangeTest : public RankPoolsTest {
 protected:
  RankPoolsChangeTest() {
    RankPoolsOptions options = Options();
    options.host_classes = {{KiB(8), 1}};
    options.nvme_classes = {{KiB(16), 1}};
    options.nvme_drives = {{dir_.path(), KiB(64)}};
    pools_ = *RankPools::Create(std::move(options));
  }
  TierPool& pool(Tier tier) { return pools_->pool(tier); }

  std::unique_ptr<RankPools> pools_;
};

TEST_F(RankPoolsChangeTest, ATierIsExtendedWithinItsBudget) {
  for (Tier tier : {Tier::kHost, Tier::kNvme}) {
    const int64_t made = pools_->allocations();
    const SlotClass more{KiB(4), 3};
    ASSERT_THAT(pools_->Extend(tier, {&more, 1}), IsOk());
    EXPECT_EQ(pools_->allocations(), made + 1);
    const Slot own = *pool(tier).Take(0);
    const Slot added = *pool(tier).Take(1);
    if (tier == Tier::kHost) {
      std::memset(own.data, 1, 8192);
      std::memset(added.data, 2, 4096);
      EXPECT_EQ(own.data[8191], std::byte{1});
    } else {
      EXPECT_EQ(pools_->nvme_at(own.offset).store, pools_->nvme());
      EXPECT_NE(pools_->nvme_at(added.offset).store, pools_->nvme());
      EXPECT_EQ(pools_->nvme_at(added.offset).offset, Bytes(0));
      const Slot second = *pool(tier).Take(1);
      EXPECT_EQ(pools_->nvme_at(second.offset).offset, KiB(4));
      pool(tier).Give(second, Event());
    }
    pool(tier).Give(added, Event());
    ASSERT_THAT(pools_->Retract(tier), IsOk());
    EXPECT_EQ(pool(tier).classes(), 1);
    pool(tier).Give(own, Event());
  }
  EXPECT_EQ(pools_->nvme_at(KiB(4)).store, pools_->nvme());
}

TEST_F(RankPoolsChangeTest, MoreThanTheBudgetIsRefusedAndNothingIsMade) {
  const int64_t made = pools_->allocations();
  const SlotClass more{KiB(4), 5};
  EXPECT_THAT(
      pools_->Extend(Tier::kHost, {&more, 1}),
      StatusIs(ErrorCode::kInfeasible, Says("20480 bytes", "16384 bytes")));
  const SlotClass none{KiB(4), 0};
  EXPECT_THAT(pools_->Extend(Tier::kHost, {&none, 1}), IsOk());
  EXPECT_EQ(pools_->allocations(), made);
}

TEST_F(RankPoolsChangeTest, TheDeviceIsGivenBackAndMadeAnew) {
  const Slot slot = *pool(Tier::kDevice).Take(0);
  EXPECT_EQ(pools_->device_bytes(), KiB(8));
  EXPECT_THAT(pools_->ReleaseDevice(), StatusIs(ErrorCode::kFailedPrecondition,
                                                Says("4096 bytes", "8192")));
  pool(Tier::kDevice).Give(slot, Event());
  ASSERT_THAT(pools_->ReleaseDevice(), IsOk());
  EXPECT_EQ(pools_->device_bytes(), Bytes(0));
  EXPECT_THAT(pools_->ReleaseDevice(), IsOk()) << "it is";
  ASSERT_THAT(pools_->RestoreDevice(), IsOk());
  ASSERT_THAT(pools_->RestoreDevice(), IsOk()) << "it is";
  EXPECT_EQ(pools_->device_bytes(), KiB(8));
  const Slot again = *pool(Tier::kDevice).Take(0);
  std::memset(again.data, 1, 4096);
  pool(Tier::kDevice).Give(again, Event());
}

TEST_F(RankPoolsChangeTest, TheDeviceGetsOneMoreSlotWithinItsBudget) {
  TierPool& device = pool(Tier::kDevice);
  const Bytes slot_bytes = device.slot_class(0).slot_bytes;
  std::vector<Slot> taken;
  while (device.free_slots(0) > 0) taken.push_back(*device.Take(0));
  Bytes held = pools_->device_bytes();
  while (held + slot_bytes <= device.stats().budget) {
    ASSERT_THAT(pools_->AddDeviceSlot(0), IsOk());
    held += slot_bytes;
    EXPECT_EQ(pools_->device_bytes(), held);
    EXPECT_EQ(device.free_slots(0), 1);
    taken.push_back(*device.Take(0));
    std::memset(taken.back().data, static_cast<int>(taken.size()),
                static_cast<size_t>(slot_bytes.count()));
  }
  EXPECT_THAT(pools_->AddDeviceSlot(0),
              StatusIs(ErrorCode::kInfeasible, Says("does not fit")));
  ASSERT_GE(taken.size(), 2u) << "the fixture leaves room";
  for (const Slot& slot : taken) device.Give(slot, Event());

  // What is given back comes back with them.
  ASSERT_THAT(pools_->ReleaseDevice(), IsOk());
  EXPECT_EQ(pools_->device_bytes(), Bytes(0));
  ASSERT_THAT(pools_->RestoreDevice(), IsOk());
  EXPECT_EQ(pools_->device_bytes(), held);
  for (size_t i = 0; i < taken.size(); ++i) {
    taken[i] = *device.Take(0);
    EXPECT_EQ(taken[i].data[0], std::byte{0});
    taken[i].data[0] = static_cast<std::byte>(i + 1);
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(taken[i].data[0], static_cast<std::byte>(i + 1)) << "its own";
    device.Give(taken[i], Event());
  }
}

TEST_F(RankPoolsChangeTest, CloseWaitsForTheBytesAndRemovesTheFiles) {
  const SlotClass more{KiB(4), 1};
  ASSERT_THAT(pools_->Extend(Tier::kNvme, {&more, 1}), IsOk());
  const Slot slot = *pool(Tier::kHost).Take(0);
  EXPECT_THAT(pools_->Close(), StatusIs(ErrorCode::kFailedPrecondition,
                                        Says("8192 bytes", "host pool")));
  EXPECT_FALSE(DirectoryIsEmpty()) << "nothing was done";
  pool(Tier::kHost).Give(slot, Event());
  EXPECT_THAT(pools_->Close(), IsOk());
  EXPECT_TRUE(DirectoryIsEmpty());
}

TEST_F(RankPoolsChangeTest, CloseReportsTheFirstFailureAndCountsTheOthers) {
  const Slot a = *pool(Tier::kDevice).Take(0);
  const Slot b = *pool(Tier::kHost).Take(0);
  pool(Tier::kDevice).Give(a, Event::Failed(IoError("a copy failed")));
  pool(Tier::kHost).Give(b, Event::Failed(DataLoss("a read failed")));
  EXPECT_THAT(pools_->Close(),
              StatusIs(ErrorCode::kIoError,
                       Says("a copy failed (1 more failure followed)")));
  EXPECT_TRUE(DirectoryIsEmpty()) << "all the same";
}

}  // namespace
}  // namespace castor
