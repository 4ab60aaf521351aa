// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Shards that change their home.

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/shards/host_window.h"
#include "offload/shards/shard_store.h"
#include "offload/shards/staging_ring.h"
#include "placement/run_event.h"
#include "tests/offload/shards/shard_store_fixture.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/faulty_io_queue.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

class RelocateFixture : public ShardStoreFixture {
 protected:
  Result<Event> Move(ChunkId chunk, Tier to, int32_t slot_class = -1) {
    return store_->Move(chunk, kParam, to, RunCause::kNone, slot_class);
  }
  Bytes in_use(Tier tier) { return pools_->pool(tier).stats().in_use; }
  int64_t free_slots(Tier tier) { return pools_->pool(tier).free_slots(0); }
};

class EveryPairTest
    : public RelocateFixture,
      public testing::WithParamInterface<std::tuple<Tier, Tier>> {
 protected:
  Tier from() const { return std::get<0>(GetParam()); }
  Tier to() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(
    Tiers, EveryPairTest,
    testing::Combine(testing::ValuesIn(kAllTiers),
                     testing::ValuesIn(kAllTiers)),
    [](const testing::TestParamInfo<std::tuple<Tier, Tier>>& info) {
      const auto name = [](Tier tier) {
        return tier == Tier::kDevice ? "Device"
               : tier == Tier::kHost ? "Host"
                                     : "Nvme";
      };
      return std::string(name(std::get<0>(info.param))) + "To" +
             name(std::get<1>(info.param));
    });

TEST_P(EveryPairTest, CarriesTheBytesAndGivesTheOldSlotBack) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(from(), 1);
  const ChunkId other = AddFilled(to(), 2, 1);
  ASSERT_OK_AND_ASSIGN(const Event moved, Move(chunk, to()));
  EXPECT_EQ(store_->home(chunk, kParam), to());
  ASSERT_THAT(moved.Wait(), IsOk());
  ExpectHolds(chunk, Filled(1).span());
  ExpectHolds(other, Filled(2).span());
  for (Tier tier : kAllTiers) {
    EXPECT_EQ(free_slots(tier), kShards - (tier == to() ? 2 : 0))
        << TierName(tier);
  }
  // It is used there like any other.
  const AlignedBytes source = Filled(3);
  ASSERT_THAT(StoreWhole(chunk, source).Wait(), IsOk());
  AlignedBytes loaded(kShard);
  ASSERT_THAT(LoadWhole(chunk, loaded).Wait(), IsOk());
  EXPECT_TRUE(SameBytes(loaded.span(), source.span()));
  // And comes back.
  ASSERT_THAT(Move(chunk, from()), IsOk());
  ExpectHolds(chunk, source.span());
  EXPECT_THAT(store_->Drain(), IsOk());
}

TEST_P(EveryPairTest, WhatNobodyHasWrittenMovesWithoutACopy) {
  Open(&workers_);
  const ChunkId chunk = Add(from());
  ASSERT_THAT(Move(chunk, to()), IsOk());
  ASSERT_THAT(store_->Drain(), IsOk());
  for (Tier a : kAllTiers) {
    for (Tier b : kAllTiers) EXPECT_EQ(moved(a, b), Bytes(0));
  }
  ASSERT_THAT(store_->WriteNow(chunk, kParam, Filled(4).data()), IsOk());
  ExpectHolds(chunk, Filled(4).span());
}

TEST_P(EveryPairTest, WaitsUntilNoWindowIsOpenOnIt) {
  if (from() == to()) return;
  Open(&workers_, 1);  // the window itself may hold all staging there is
  const ChunkId chunk = AddFilled(from(), 1);
  HostWindow window = OpenWhole(chunk, WindowMode::kReadWrite);
  ASSERT_OK_AND_ASSIGN(const Event moved, Move(chunk, to()));
  EXPECT_EQ(store_->home(chunk, kParam), from());
  EXPECT_THAT(Move(chunk, to()), IsOk()) << "the same move";
  const Tier third = static_cast<Tier>(3 - TierIndex(from()) - TierIndex(to()));
  EXPECT_THAT(Move(chunk, third).status(),
              StatusIs(ErrorCode::kFailedPrecondition, Says("already")));
  ASSERT_THAT(window.ready.Wait(), IsOk());
  const AlignedBytes bytes = Filled(5);
  std::copy(bytes.span().begin(), bytes.span().end(), window.data);
  store_->CloseWindow(std::move(window), Event());
  EXPECT_EQ(store_->home(chunk, kParam), to());
  ASSERT_THAT(moved.Wait(), IsOk());
  ExpectHolds(chunk, bytes.span());
}

using RelocateTest = RelocateFixture;

TEST_F(RelocateTest, AFullTierIsRefusedWithTheNumbers) {
  Open(&workers_);
  for (int c = 0; c < kShards; ++c) Add(Tier::kHost, c);
  const ChunkId chunk = AddFilled(Tier::kDevice, 1, kShards);
  EXPECT_THAT(Move(chunk, Tier::kHost, 0).status(),
              StatusIs(ErrorCode::kTierFull,
                       Says("moving param of chunk 4 from device to host",
                            "nothing to wait for", "all 4 slots of class 0")));
  EXPECT_EQ(store_->home(chunk, kParam), Tier::kDevice);
  ExpectHolds(chunk, Filled(1).span());
}

TEST_F(RelocateTest, AFullTierIsWaitedForWhereASlotIsOnItsWayBack) {
  Open(&workers_);
  std::vector<Slot> held;
  for (int c = 0; c < kShards; ++c) {
    held.push_back(*pools_->pool(Tier::kHost).Take(0));  // for work that ends
  }
  const ChunkId chunk = AddFilled(Tier::kDevice, 1);
  ASSERT_OK_AND_ASSIGN(const Event moved, Move(chunk, Tier::kHost, 0));
  EXPECT_FALSE(moved.done());
  ExpectHolds(chunk, Filled(1).span());
  EXPECT_THAT(store_->Drain(),
              StatusIs(ErrorCode::kFailedPrecondition, Says("1 moves")));
  EventSource used;
  pools_->pool(Tier::kHost).Give(held[2], used.event());
  EXPECT_EQ(store_->home(chunk, kParam), Tier::kHost);
  EXPECT_FALSE(moved.done()) << "the slot is still in use";
  used.Complete();
  ASSERT_THAT(moved.Wait(), IsOk());
  ExpectHolds(chunk, Filled(1).span());
  for (int i : {0, 1, 3}) {
    pools_->pool(Tier::kHost).Give(held[static_cast<size_t>(i)], Event());
  }
}

// The slot that one waits for is that of another, which waits for a window.
TEST_F(RelocateTest, AChainOfMovesGoesOnAsSoonAsItsFirstMay) {
  Open(&workers_, 5, 1);
  AddFilled(Tier::kDevice, 1, 0);
  AddFilled(Tier::kHost, 2, 1);
  HostWindow window = OpenWhole(ChunkId(0), WindowMode::kRead);
  EXPECT_THAT(Move(ChunkId(1), Tier::kDevice).status(),
              StatusIs(ErrorCode::kTierFull))
      << "nobody is about to leave";
  ASSERT_OK_AND_ASSIGN(const Event first, Move(ChunkId(0), Tier::kNvme));
  ASSERT_OK_AND_ASSIGN(const Event second, Move(ChunkId(1), Tier::kDevice));
  EXPECT_EQ(store_->home(ChunkId(1), kParam), Tier::kHost);
  // The slot of the second is on its way back, too: staging has the rest.
  store_->CloseWindow(std::move(window), Event());
  EXPECT_EQ(store_->home(ChunkId(0), kParam), Tier::kNvme);
  EXPECT_EQ(store_->home(ChunkId(1), kParam), Tier::kDevice);
  ASSERT_THAT(store_->Drain(), IsOk());
  ExpectHolds(ChunkId(0), Filled(1).span());
  ExpectHolds(ChunkId(1), Filled(2).span());
}

TEST_F(RelocateTest, AMoveThroughStagingWaitsForASlotOfTheRing) {
  Open(&workers_, 1);
  AddFilled(Tier::kNvme, 1, 0);
  AddFilled(Tier::kNvme, 2, 1);
  HostWindow window = OpenWhole(ChunkId(0), WindowMode::kRead);
  ASSERT_OK_AND_ASSIGN(const Event moved, Move(ChunkId(1), Tier::kDevice));
  EXPECT_EQ(store_->home(ChunkId(1), kParam), Tier::kNvme);
  // A window on it, asked for later, comes first: the move lets it through.
  HostWindow later = OpenWhole(ChunkId(1), WindowMode::kRead);
  store_->CloseWindow(std::move(window), Event());
  ASSERT_THAT(later.ready.Wait(), IsOk());
  EXPECT_TRUE(SameBytes({later.bytes().get(), 6000}, Filled(2).span()));
  EXPECT_EQ(store_->home(ChunkId(1), kParam), Tier::kNvme);
  store_->CloseWindow(std::move(later), Event());
  EXPECT_EQ(store_->home(ChunkId(1), kParam), Tier::kDevice);
  ASSERT_THAT(moved.Wait(), IsOk());
  ExpectHolds(ChunkId(1), Filled(2).span());
}

TEST_F(RelocateTest, WithoutStagingOnlyTheWayThroughItIsClosed) {
  Open(&workers_, 0);
  const ChunkId chunk = Add(Tier::kDevice);
  EXPECT_THAT(Move(chunk, Tier::kNvme).status(),
              StatusIs(ErrorCode::kInfeasible, Says("there are 0")));
  EXPECT_THAT(Move(chunk, Tier::kHost), IsOk());
  EXPECT_THAT(Move(chunk, Tier::kNvme), IsOk()) << "from host memory";
  EXPECT_THAT(store_->Drain(), IsOk());
}

TEST_F(RelocateTest, ASlotOfTheClassThatIsNamedIsTaken) {
  Open(&workers_, 2);
  const ChunkId chunk = AddFilled(Tier::kDevice, 1);
  EXPECT_EQ(store_->slot_class(chunk, kParam), 0);
  const SlotClass large{KiB(16), 1};
  ASSERT_THAT(pools_->Extend(Tier::kHost, {&large, 1}), IsOk());
  ASSERT_THAT(Move(chunk, Tier::kHost, 2), IsOk());
  EXPECT_EQ(store_->slot_class(chunk, kParam), 2);
  ExpectHolds(chunk, Filled(1).span());
  ASSERT_THAT(Move(chunk, Tier::kDevice), IsOk());
  ASSERT_THAT(pools_->Retract(Tier::kHost), IsOk());
  ExpectHolds(chunk, Filled(1).span());
}

TEST_F(RelocateTest, ShardsThatNoClassHoldsAreRefused) {
  Open(&workers_);
  ASSERT_THAT(store_->AddShard(ChunkId(0), kParam, Tier::kHost, 1, KiB(12)),
              StatusIs(ErrorCode::kTierFull));
  Stop();
  Open(&workers_, 0);
  const SlotClass large{KiB(16), 1};
  ASSERT_THAT(pools_->Extend(Tier::kHost, {&large, 1}), IsOk());
  ASSERT_THAT(store_->AddShard(ChunkId(0), kParam, Tier::kHost, 2, KiB(12)),
              IsOk());
  EXPECT_THAT(Move(ChunkId(0), Tier::kDevice).status(),
              StatusIs(ErrorCode::kInfeasible,
                       Says("12288 bytes", "device pool", "8192 bytes")));
}

TEST_F(RelocateTest, AMoveThatFailsIsHeardAndReportedByDrain) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(Tier::kHost, 1);
  const ChunkId other = AddFilled(Tier::kHost, 2, 1);
  faults_->Inject(IoDirection::kWrite, 1, IoFault::kFail);
  ASSERT_OK_AND_ASSIGN(const Event moved, Move(chunk, Tier::kNvme));
  EXPECT_THAT(moved.Wait(), StatusIs(ErrorCode::kIoError));
  EXPECT_EQ(failures(), 1);
  EXPECT_THAT(store_->Drain(),
              StatusIs(ErrorCode::kIoError, Says("param of chunk 0")));
  ExpectHolds(other, Filled(2).span());
  EXPECT_THAT(store_->Close(), StatusIs(ErrorCode::kIoError));
  EXPECT_EQ(in_use(Tier::kHost), Bytes(0)) << "and every slot is back";
}

TEST_F(RelocateTest, EveryTurnOfAMoveToTheDevice) {
  Open(&manual_);
  const ChunkId chunk = AddFilled(Tier::kHost, 1);
  EventSource reader;
  store_->AddReader(chunk, kParam, reader.event());
  EventSource writer;
  store_->SetWritten(chunk, kParam, writer.event());
  EventSource late_reader;
  store_->AddReader(chunk, kParam, late_reader.event());
  ASSERT_OK_AND_ASSIGN(const Event moved, Move(chunk, Tier::kDevice));
  manual_.RunAll();
  EXPECT_FALSE(moved.done());
  writer.Complete();
  manual_.RunAll();
  EXPECT_TRUE(moved.done()) << "it only reads the old home";
  const Event left = pools_->pool(Tier::kHost).AllFree(0);
  EXPECT_FALSE(left.done()) << "which others read as well";
  late_reader.Complete();
  reader.Complete();
  EXPECT_TRUE(left.done());
}

}  // namespace
}  // namespace castor
