// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/timeline/wires.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/device.h"
#include "offload/lanes/solo_executor.h"
#include "offload/twin/simulated_link.h"
#include "placement/tier_model.h"
#include "tests/support/test_seed.h"

namespace castor::internal {
namespace {

using testing::ElementsAre;

constexpr int64_t kGB = 1'000'000'000;

// When transfers end that begin at some time.
class WiresTest : public testing::Test {
 protected:
  void Begin(int64_t at_ns, Traffic traffic, Bytes bytes) {
    const size_t i = ends_.size();
    ends_.push_back(-1);
    clock_.At(at_ns, [this, i, traffic, bytes] {
      wires_->Begin(traffic, bytes, [this, i] { ends_[i] = clock_.NowNs(); });
    });
  }
  void Run(const TierModel& speeds) {
    wires_.emplace(&clock_, speeds);
    clock_.RunAll();
  }

  SoloExecutor clock_;
  std::optional<Wires> wires_;
  std::vector<int64_t> ends_;
};

TEST_F(WiresTest, TransfersEndWhenThoseOfTheTwinDo) {
  std::mt19937_64 random(TestSeed(20261201));
  TierModel speeds;
  speeds.host_to_device = LinkModel{777'777'777, 1'300};
  speeds.device_to_host = LinkModel{333'333'331, 700};
  SimulatedLinks links(LinkModelsOf(speeds, Duplex::kFull));
  std::vector<int64_t> want;
  int64_t now_ns = 0;
  for (int i = 0; i < 500; ++i) {
    now_ns += static_cast<int64_t>(random() % 40'000);
    const bool to = random() % 2 == 0;
    const Bytes bytes(static_cast<int64_t>(random() % 40'000));
    Begin(now_ns, to ? Traffic::kToDevice : Traffic::kFromDevice, bytes);
    want.push_back(links.Book(to ? CopyKind::kToDevice : CopyKind::kFromDevice,
                              now_ns, bytes));
  }
  Run(speeds);
  EXPECT_EQ(ends_, want);
  const LinkUse use = links.use(CopyKind::kToDevice);
  EXPECT_EQ(wires_->bytes(Traffic::kToDevice), use.bytes);
  EXPECT_EQ(wires_->busy_ns(Traffic::kToDevice), use.busy_ns);
}

TEST_F(WiresTest, BothDirectionsSlowEachOtherWhileBothAreBusy) {
  TierModel speeds;
  speeds.host_to_device = LinkModel{2 * kGB, 0};
  speeds.device_to_host = LinkModel{2 * kGB, 0};
  speeds.host_to_device_duplex = LinkModel{kGB, 0};
  speeds.device_to_host_duplex = LinkModel{kGB, 0};
  Begin(0, Traffic::kToDevice, Bytes(4'000));
  Begin(1'000, Traffic::kFromDevice, Bytes(1'000));
  Run(speeds);
  // 2,000 bytes alone, 1,000 in the 1,000 ns of the other, 1,000 alone.
  EXPECT_THAT(ends_, ElementsAre(2'500, 2'000));
}

TEST_F(WiresTest, CopiesAndTheOptimizerShareMemory) {
  TierModel speeds;
  speeds.host_to_device = LinkModel{2 * kGB, 0};
  speeds.optimizer = RateModel{20 * kGB};
  speeds.memory = RateModel{10 * kGB};
  Begin(0, Traffic::kOptimizer, Bytes(20'000));
  Begin(500, Traffic::kToDevice, Bytes(2'000));
  Run(speeds);
  // The copy gets all it can take, the pass the other 8 GB/s: 5,000 bytes alone
  // in 500 ns, 8,000 in the 1,000 of the copy, 7,000 alone.
  EXPECT_THAT(ends_, ElementsAre(2'200, 1'500));
}

TEST_F(WiresTest, ADriveThatReadsAndWritesHasItsMixedRate) {
  TierModel speeds;
  speeds.nvme_read = LinkModel{2 * kGB, 0};
  speeds.nvme_write = LinkModel{2 * kGB, 0};
  speeds.nvme_mixed = LinkModel{kGB, 0};
  Begin(0, Traffic::kDriveRead, Bytes(2'000));
  Begin(0, Traffic::kDriveWrite, Bytes(2'000));
  Begin(10'000, Traffic::kDriveRead, Bytes(2'000));
  Run(speeds);
  EXPECT_THAT(ends_, ElementsAre(2'000, 3'000, 11'000));
}

TEST_F(WiresTest, WhatNobodyMeasuredTakesNoTime) {
  Begin(7, Traffic::kDriveWrite, MiB(1));
  Begin(9, Traffic::kOptimizer, MiB(1));
  Run(TierModel());
  EXPECT_THAT(ends_, ElementsAre(7, 9));
  EXPECT_EQ(wires_->bytes(Traffic::kDriveWrite), MiB(1));
}

// A speed and a size that each may be there together take longer than the clock
// can say.
TEST_F(WiresTest, ATimeBeyondTheClockIsItsLastMoment) {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  TierModel speeds;
  speeds.host_to_device = LinkModel{1, 5};
  speeds.device_to_host = LinkModel{kGB, kLast};
  Begin(10, Traffic::kToDevice, Bytes(int64_t{1} << 60));
  Begin(20, Traffic::kFromDevice, Bytes(1));
  Run(speeds);
  EXPECT_THAT(ends_, ElementsAre(kLast, kLast));
}

}  // namespace
}  // namespace castor::internal
