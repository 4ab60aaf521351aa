// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/shards/shard_store.h"

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/shards/host_window.h"
#include "offload/shards/staging_ring.h"
#include "placement/run_event.h"
#include "tests/offload/shards/shard_store_fixture.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/faulty_io_queue.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using ShardStoreTest = ShardStoreFixture;

INSTANTIATE_TEST_SUITE_P(Homes, EveryHomeTest, testing::ValuesIn(kAllTiers),
                         NameOfHome);

TEST_P(EveryHomeTest, RefusesMoreShardsThanThereAreSlots) {
  Open(&workers_);
  for (int c = 0; c < kShards; ++c) Add(home(), c);
  EXPECT_THAT(
      store_->AddShard(ChunkId(kShards), kParam, home(), 0, kShard),
      StatusIs(ErrorCode::kTierFull, Says(std::string(TierName(home())))));
  EXPECT_FALSE(store_->has(ChunkId(kShards), kParam));
}

TEST_P(EveryHomeTest, WhatIsWrittenAtOnceIsReadAtOnceWholeAndInPart) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(home(), 1);
  ExpectHolds(chunk, Filled(1).span());
  AlignedBytes part(Bytes(100));
  ASSERT_THAT(
      store_->ReadNow(chunk, kParam, {Bytes(1000), Bytes(1100)}, part.data()),
      IsOk());
  EXPECT_TRUE(SameBytes(part.span(), Filled(1).part(Bytes(1000), Bytes(100))));
}

TEST_P(EveryHomeTest, StoresAndLeavesTheSourceAtItsEvent) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(home(), 1);
  AlignedBytes source = Filled(2);
  const Event free = StoreWhole(chunk, source);
  ASSERT_THAT(free.Wait(), IsOk());
  FillRandom(source.span(), 99);  // ours again
  ExpectHolds(chunk, Filled(2).span());
}

TEST_P(EveryHomeTest, AWindowReadsWritesOrDoesBoth) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(home(), 1);
  const auto open = [&](ByteRange range, WindowMode mode) {
    HostWindow window =
        store_->OpenWindow(chunk, kParam, range, mode, RunCause::kOptimizer);
    EXPECT_THAT(window.ready.Wait(), IsOk());
    return window;
  };
  AlignedBytes want = Filled(1);
  {
    HostWindow window = open({Bytes(64), Bytes(128)}, WindowMode::kRead);
    EXPECT_TRUE(SameBytes({window.data, 64}, want.part(Bytes(64), Bytes(64))));
    store_->CloseWindow(std::move(window), Event());
  }
  // A part that is written leaves the rest, wherever it is.
  for (WindowMode mode : {WindowMode::kWrite, WindowMode::kReadWrite}) {
    const ByteRange range = mode == WindowMode::kWrite
                                ? ByteRange{Bytes(512), Bytes(1024)}
                                : ByteRange{Bytes(4032), kShard};
    HostWindow window = open(range, mode);
    const std::span bytes(window.data,
                          static_cast<size_t>(range.size().count()));
    if (mode == WindowMode::kReadWrite) {
      EXPECT_TRUE(SameBytes(bytes, want.part(range.begin, range.size())));
    }
    FillRandom(bytes, 5);
    FillRandom(want.part(range.begin, range.size()), 5);
    store_->CloseWindow(std::move(window), Event());
    ExpectHolds(chunk, want.span());
  }
  HostWindow window = open(kWhole, WindowMode::kWrite);
  std::memcpy(window.data, Filled(6).data(), 6000);
  store_->CloseWindow(std::move(window), Event());
  ExpectHolds(chunk, Filled(6).span());
}

TEST_P(EveryHomeTest, AScratchWindowIsACopyOfDeviceMemory) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(home(), 1);
  AlignedBytes source = Filled(2);
  WindowRequest request;
  request.chunk = chunk;
  request.range = {Bytes(0), Bytes(1000)};
  request.mode = WindowMode::kScratch;
  request.from = source.data();
  ASSERT_OK_AND_ASSIGN(std::vector<HostWindow> windows,
                       store_->OpenWindows({&request, 1}));
  HostWindow& window = windows.front();
  ASSERT_THAT(window.ready.Wait(), IsOk());
  FillRandom(source.span(), 99);  // ours again
  EXPECT_TRUE(SameBytes({window.bytes().get(), 1000},
                        Filled(2).part(Bytes(0), Bytes(1000))));
  store_->CloseWindow(std::move(window), Event());
  ExpectHolds(chunk, Filled(1).span());
}

TEST_P(EveryHomeTest,
       NothingIsLostWhenTheStoreIsDestroyedWhileMovesAreUnderWay) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(home(), 1);
  AlignedBytes loaded(kShard);
  const AlignedBytes source = Filled(2);
  EventSource begin;
  StoreWhole(chunk, source, begin.event());
  const Event load = LoadWhole(chunk, loaded);
  begin.Complete();
  Stop();
  ASSERT_TRUE(load.done());
  EXPECT_THAT(load.status(), IsOk());
  EXPECT_TRUE(SameBytes(loaded.span(), source.span()));
  for (Tier tier : kAllTiers) {
    EXPECT_EQ(pools_->pool(tier).stats().in_use, Bytes(0)) << TierName(tier);
  }
}

TEST_F(ShardStoreTest, CountsTheBytesOfEveryLinkExactly) {
  Open(&workers_);
  const ChunkId device = AddFilled(Tier::kDevice, 1, 0);
  const ChunkId host = AddFilled(Tier::kHost, 1, 1);
  const ChunkId nvme = AddFilled(Tier::kNvme, 1, 2);
  // Start: the device by a copy, the host in place, the drive by its extent.
  EXPECT_EQ(moved(Tier::kHost, Tier::kDevice), kShard);
  EXPECT_EQ(moved(Tier::kHost, Tier::kNvme), kSlot);
  AlignedBytes memory(kShard);
  const auto load = [&](ChunkId chunk, ByteRange range) {
    ASSERT_THAT(store_
                    ->Load(chunk, kParam, range, memory.data(), Event(),
                           RunCause::kDemand)
                    .Wait(),
                IsOk());
  };
  load(host, {Bytes(10), Bytes(110)});
  EXPECT_EQ(moved(Tier::kHost, Tier::kDevice), kShard + Bytes(100));
  load(device, {Bytes(10), Bytes(110)});
  EXPECT_EQ(moved(Tier::kDevice, Tier::kDevice), Bytes(100));
  load(nvme, {Bytes(10), Bytes(110)});
  EXPECT_EQ(moved(Tier::kNvme, Tier::kHost), kSlot);
  EXPECT_EQ(moved(Tier::kHost, Tier::kDevice), kShard + Bytes(200));
  ASSERT_THAT(StoreWhole(nvme, memory).Wait(), IsOk());
  EXPECT_EQ(moved(Tier::kDevice, Tier::kHost), kShard);
  EXPECT_EQ(moved(Tier::kHost, Tier::kNvme), kSlot * 2);
  // A window on host memory moves nothing.
  store_->CloseWindow(OpenWhole(host, WindowMode::kReadWrite), Event());
  EXPECT_EQ(moved(Tier::kHost, Tier::kHost), Bytes(0));
  EXPECT_EQ(moved(Tier::kDevice, Tier::kHost), kShard);
  // On the device both ways, on the drive only back when written whole.
  store_->CloseWindow(OpenWhole(device, WindowMode::kReadWrite), Event());
  EXPECT_EQ(moved(Tier::kDevice, Tier::kHost), kShard * 2);
  EXPECT_EQ(moved(Tier::kHost, Tier::kDevice), kShard * 2 + Bytes(200));
  store_->CloseWindow(OpenWhole(nvme, WindowMode::kWrite), Event());
  EXPECT_EQ(moved(Tier::kNvme, Tier::kHost), kSlot);
  EXPECT_EQ(moved(Tier::kHost, Tier::kNvme), kSlot * 3);
}

TEST_F(ShardStoreTest, LoadsTakeTurnsThroughOneStagingSlot) {
  Open(&workers_, 1);
  const Bytes in_use = pools_->pool(Tier::kHost).stats().in_use;
  EXPECT_EQ(in_use, KiB(12));
  const ChunkId chunk = AddFilled(Tier::kNvme, 1);
  AlignedBytes memory(kShard);
  Event last;
  for (int i = 0; i < 200; ++i) {
    last = store_->Load(chunk, kParam, kWhole, memory.data(), last,
                        RunCause::kDemand);
  }
  ASSERT_THAT(last.Wait(), IsOk());
  EXPECT_EQ(pools_->pool(Tier::kHost).stats().in_use, in_use);
  EXPECT_EQ(pools_->pool(Tier::kHost).stats().peak, in_use);
  EXPECT_EQ(store_->staging().waits(), 0) << "slots pass on with their events";
}

TEST_F(ShardStoreTest, AWindowNobodyUsedKeepsItsStagingUntilItIsReady) {
  Open(&workers_, 1);
  const ChunkId chunk = AddFilled(Tier::kNvme, 1);
  faults_->Hold();
  store_->CloseWindow(OpenWhole(chunk, WindowMode::kRead), Event());
  EXPECT_FALSE(store_->staging().AllFree().done());
  faults_->Release();
  EXPECT_THAT(store_->staging().AllFree().Wait(), IsOk());
}

TEST_F(ShardStoreTest, AVacatedShardTakesNoSlotUntilItIsBack) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(Tier::kDevice, 1);
  store_->Vacate(chunk, kParam);
  EXPECT_EQ(pools_->pool(Tier::kDevice).stats().in_use, Bytes(0));
  EXPECT_EQ(store_->bytes(chunk, kParam), kShard);
  ASSERT_THAT(store_->Reoccupy(chunk, kParam), IsOk());
  ASSERT_THAT(store_->WriteNow(chunk, kParam, Filled(2).data()), IsOk());
  ExpectHolds(chunk, Filled(2).span());
}

using ShardStoreDeathTest = ShardStoreTest;

TEST_F(ShardStoreDeathTest, AWindowThatWritesBarsOtherMoves) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Open(&workers_);
  const ChunkId chunk = AddFilled(Tier::kHost, 1);
  AlignedBytes memory(kShard);
  HostWindow window = OpenWhole(chunk, WindowMode::kWrite);
  EXPECT_DEATH(LoadWhole(chunk, memory), "");
  EXPECT_DEATH(OpenWhole(chunk, WindowMode::kRead), "");
  store_->CloseWindow(std::move(window), Event());
}

}  // namespace
}  // namespace castor
