// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/shard_store.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
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
#include "offload/event.h"
#include "offload/lane.h"
#include "offload/tier_pool.h"
#include "placement/run_event.h"
#include "tests/offload/shard_store_fixture.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/faulty_io_queue.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::HasSubstr;
using ShardStoreTest = ShardStoreFixture;

class EveryHomeTest : public ShardStoreFixture,
                      public testing::WithParamInterface<Tier> {
 protected:
  Tier home() const { return GetParam(); }
};

std::string NameOf(const testing::TestParamInfo<Tier>& info) {
  return info.param == Tier::kDevice ? "Device"
         : info.param == Tier::kHost ? "Host"
                                     : "Nvme";
}
INSTANTIATE_TEST_SUITE_P(Homes, EveryHomeTest, testing::ValuesIn(kAllTiers),
                         NameOf);

TEST_P(EveryHomeTest, AddedShardsAreKnown) {
  Open(&workers_);
  const ChunkId chunk = Add(home(), 2);
  EXPECT_TRUE(store_->has(chunk, kParam));
  EXPECT_FALSE(store_->has(chunk, StateKind::kGrad));
  EXPECT_FALSE(store_->has(ChunkId(1), kParam));
  EXPECT_FALSE(store_->has(ChunkId(9), kParam));
  EXPECT_EQ(store_->home(chunk, kParam), home());
  EXPECT_EQ(store_->bytes(chunk, kParam), kShard);
}

TEST_P(EveryHomeTest, RefusesMoreShardsThanThereAreSlots) {
  Open(&workers_);
  for (int c = 0; c < kShards; ++c) Add(home(), c);
  EXPECT_THAT(
      store_->AddShard(ChunkId(kShards), kParam, home(), 0, kShard),
      StatusIs(ErrorCode::kTierFull, HasSubstr(std::string(TierName(home())))));
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

TEST_P(EveryHomeTest, LoadsWholeShardsAndPartsOfThem) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(home(), 1);
  AlignedBytes whole(kShard);
  AlignedBytes part(Bytes(512));
  const Event first = store_->Load(chunk, kParam, kWhole, whole.data(), Event(),
                                   RunCause::kDemand);
  const Event second = store_->Load(chunk, kParam, {Bytes(256), Bytes(768)},
                                    part.data(), Event(), RunCause::kDemand);
  ASSERT_THAT(first.Wait(), IsOk());
  ASSERT_THAT(second.Wait(), IsOk());
  EXPECT_TRUE(SameBytes(whole.span(), Filled(1).span()));
  EXPECT_TRUE(SameBytes(part.span(), Filled(1).part(Bytes(256), Bytes(512))));
}

TEST_P(EveryHomeTest, StoresAndLeavesTheSourceAtItsEvent) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(home(), 1);
  AlignedBytes source = Filled(2);
  const Event free = store_->Store(chunk, kParam, kWhole, source.data(),
                                   Event(), RunCause::kGradient);
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

TEST_P(EveryHomeTest, StagesDeviceMemoryForWorkOnTheHost) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(home(), 1);
  const AlignedBytes source = Filled(2);
  Event copied;
  Slot staging =
      store_->StageFromDevice(chunk, kParam, source.data(), Bytes(1000),
                              Event(), RunCause::kGradient, &copied);
  ASSERT_THAT(copied.Wait(), IsOk());
  EXPECT_TRUE(
      SameBytes({staging.data, 1000}, source.part(Bytes(0), Bytes(1000))));
  store_->GiveStaging(std::move(staging), Event());
  ExpectHolds(chunk, Filled(1).span());
}

// Moves of several shards on all lanes at once, against plain arrays changed
// in the order of the calls. What is loaded is what was last written before.
TEST_P(EveryHomeTest, RandomMovesReadWhatWasWrittenLast) {
  std::mt19937_64 random(TestSeed(21 + TierIndex(home())));
  record_ = false;
  Open(&workers_);
  WorkerLane host_lane("host", &workers_);
  std::vector<AlignedBytes> model;
  for (int c = 0; c < kShards; ++c) {
    AddFilled(home(), static_cast<uint64_t>(c), c);
    model.push_back(Filled(static_cast<uint64_t>(c)));
  }
  const auto range = [&] {
    const int64_t a = static_cast<int64_t>(random() % 6001);
    const int64_t b = static_cast<int64_t>(random() % 6001);
    return random() % 3 == 0
               ? kWhole
               : ByteRange{Bytes(std::min(a, b)), Bytes(std::max(a, b))};
  };
  for (int round = 0; round < 25; ++round) {
    struct Check {
      std::unique_ptr<AlignedBytes> got;
      std::unique_ptr<AlignedBytes> want;
    };
    std::vector<Check> checks;
    std::vector<std::unique_ptr<AlignedBytes>> sources;
    std::vector<Event> ends;
    for (int i = 0; i < 20; ++i) {
      const size_t c = random() % kShards;
      const ChunkId chunk(static_cast<int32_t>(c));
      ByteRange r = range();
      const auto copy = [&](std::span<std::byte> from) {
        auto bytes = std::make_unique<AlignedBytes>(r.size());
        std::copy(from.begin(), from.end(), bytes->span().begin());
        return bytes;
      };
      switch (random() % 4) {
        case 0: {
          checks.push_back({std::make_unique<AlignedBytes>(r.size()),
                            copy(model[c].part(r.begin, r.size()))});
          ends.push_back(store_->Load(chunk, kParam, r,
                                      checks.back().got->data(), Event(),
                                      RunCause::kDemand));
          break;
        }
        case 1: {
          if (home() == Tier::kNvme) r = kWhole;
          sources.push_back(std::make_unique<AlignedBytes>(r.size()));
          FillRandom(sources.back()->span(), random());
          std::copy(sources.back()->span().begin(),
                    sources.back()->span().end(),
                    model[c].part(r.begin, r.size()).begin());
          ends.push_back(store_->Store(chunk, kParam, r, sources.back()->data(),
                                       Event(), RunCause::kGradient));
          break;
        }
        case 2: {  // read in host memory
          HostWindow window = store_->OpenWindow(
              chunk, kParam, r, WindowMode::kRead, RunCause::kOptimizer);
          checks.push_back({std::make_unique<AlignedBytes>(r.size()),
                            copy(model[c].part(r.begin, r.size()))});
          host_lane.Wait(window.ready);
          host_lane.Run([from = window.data, to = checks.back().got->span()] {
            std::memcpy(to.data(), from, to.size());
            return OkStatus();
          });
          store_->CloseWindow(std::move(window), host_lane.Record());
          break;
        }
        case 3: {  // add one to every byte, in host memory
          HostWindow window = store_->OpenWindow(
              chunk, kParam, r, WindowMode::kReadWrite, RunCause::kOptimizer);
          const size_t size = static_cast<size_t>(r.size().count());
          const auto add_one = [](std::span<std::byte> bytes) {
            for (std::byte& b : bytes) {
              b = static_cast<std::byte>(std::to_integer<int>(b) + 1);
            }
          };
          host_lane.Wait(window.ready);
          host_lane.Run([bytes = std::span(window.data, size), add_one] {
            add_one(bytes);
            return OkStatus();
          });
          store_->CloseWindow(std::move(window), host_lane.Record());
          add_one(model[c].part(r.begin, r.size()));
          break;
        }
      }
    }
    for (const Event& end : ends) ASSERT_THAT(end.Wait(), IsOk());
    ASSERT_THAT(host_lane.Drain(), IsOk());
    for (const Check& check : checks) {
      ASSERT_TRUE(SameBytes(check.got->span(), check.want->span()));
    }
    for (size_t c = 0; c < kShards; ++c) {
      ExpectHolds(ChunkId(static_cast<int32_t>(c)), model[c].span());
    }
  }
  EXPECT_EQ(failures(), 0);
}

TEST_P(EveryHomeTest,
       NothingIsLostWhenTheStoreIsDestroyedWhileMovesAreUnderWay) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(home(), 1);
  AlignedBytes loaded(kShard);
  const AlignedBytes source = Filled(2);
  EventSource begin;
  store_->Store(chunk, kParam, kWhole, source.data(), begin.event(),
                RunCause::kGradient);
  const Event load = store_->Load(chunk, kParam, kWhole, loaded.data(), Event(),
                                  RunCause::kDemand);
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
  ASSERT_THAT(store_
                  ->Store(nvme, kParam, kWhole, memory.data(), Event(),
                          RunCause::kGradient)
                  .Wait(),
              IsOk());
  EXPECT_EQ(moved(Tier::kDevice, Tier::kHost), kShard);
  EXPECT_EQ(moved(Tier::kHost, Tier::kNvme), kSlot * 2);
  // A window on host memory moves nothing.
  store_->CloseWindow(
      store_->OpenWindow(host, kParam, kWhole, WindowMode::kReadWrite,
                         RunCause::kOptimizer),
      Event());
  EXPECT_EQ(moved(Tier::kHost, Tier::kHost), Bytes(0));
  EXPECT_EQ(moved(Tier::kDevice, Tier::kHost), kShard);
  // On the device both ways, on the drive only back when written whole.
  store_->CloseWindow(
      store_->OpenWindow(device, kParam, kWhole, WindowMode::kReadWrite,
                         RunCause::kOptimizer),
      Event());
  EXPECT_EQ(moved(Tier::kDevice, Tier::kHost), kShard * 2);
  EXPECT_EQ(moved(Tier::kHost, Tier::kDevice), kShard * 2 + Bytes(200));
  store_->CloseWindow(
      store_->OpenWindow(nvme, kParam, kWhole, WindowMode::kWrite,
                         RunCause::kOptimizer),
      Event());
  EXPECT_EQ(moved(Tier::kNvme, Tier::kHost), kSlot);
  EXPECT_EQ(moved(Tier::kHost, Tier::kNvme), kSlot * 3);
}

TEST_F(ShardStoreTest, TheStagingRingIsReusedLongestFreeFirst) {
  Open(&workers_, 3);
  const Bytes in_use = pools_->pool(Tier::kHost).stats().in_use;
  EXPECT_EQ(in_use, KiB(12) * 3);
  std::vector<std::byte*> order;
  std::vector<Slot> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(store_->TakeStaging());
  for (const Slot& slot : taken) order.push_back(slot.data);
  for (size_t i : {2, 0, 1}) store_->GiveStaging(taken[i], Event());
  for (size_t i : {2, 0, 1}) {
    taken[i] = store_->TakeStaging();
    EXPECT_EQ(taken[i].data, order[i]);
  }
  for (const Slot& slot : taken) store_->GiveStaging(slot, Event());

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
}

TEST_F(ShardStoreTest, AWindowNobodyUsedKeepsItsStagingUntilItIsReady) {
  Open(&workers_, 1);
  const ChunkId chunk = AddFilled(Tier::kNvme, 1);
  faults_->Hold();
  HostWindow window = store_->OpenWindow(
      chunk, kParam, kWhole, WindowMode::kRead, RunCause::kOptimizer);
  store_->CloseWindow(std::move(window), Event());
  Slot staging = store_->TakeStaging();
  EXPECT_FALSE(staging.free_after.done());
  faults_->Release();
  EXPECT_THAT(staging.free_after.Wait(), IsOk());
  store_->GiveStaging(std::move(staging), Event());
}

using ShardStoreDeathTest = ShardStoreTest;

TEST_F(ShardStoreDeathTest, AWindowThatWritesBarsOtherMoves) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Open(&workers_);
  const ChunkId chunk = AddFilled(Tier::kHost, 1);
  AlignedBytes memory(kShard);
  HostWindow window = store_->OpenWindow(
      chunk, kParam, kWhole, WindowMode::kWrite, RunCause::kOptimizer);
  EXPECT_DEATH(store_->Load(chunk, kParam, kWhole, memory.data(), Event(),
                            RunCause::kDemand),
               "");
  EXPECT_DEATH(store_->OpenWindow(chunk, kParam, kWhole, WindowMode::kRead,
                                  RunCause::kOptimizer),
               "");
  store_->CloseWindow(std::move(window), Event());
}

TEST_F(ShardStoreDeathTest, MoreWindowsThanStagingSlotsIsADefect) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Open(&workers_, 1);
  AddFilled(Tier::kNvme, 1, 0);
  AddFilled(Tier::kNvme, 1, 1);
  HostWindow window = store_->OpenWindow(
      ChunkId(0), kParam, kWhole, WindowMode::kRead, RunCause::kOptimizer);
  EXPECT_DEATH(store_->OpenWindow(ChunkId(1), kParam, kWhole, WindowMode::kRead,
                                  RunCause::kOptimizer),
               "staging");
  store_->CloseWindow(std::move(window), Event());
}

}  // namespace
}  // namespace castor
