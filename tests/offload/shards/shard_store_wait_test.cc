// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A ShardStore whose staging slots are all held: who waits for whom, turn by
// turn, and that nobody waits for himself.

#include <cstring>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/shards/host_window.h"
#include "offload/shards/shard_store.h"
#include "placement/run_event.h"
#include "tests/offload/shards/shard_store_fixture.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/faulty_io_queue.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

class ShardStoreWaitTest : public ShardStoreFixture {
 protected:
  // A store with `staging` slots on the manual executor, and four filled shards
  // at home on `home`. They are filled first: that blocks.
  void OpenWith(int64_t staging, Tier home) {
    Open(&workers_, staging);
    for (int c = 0; c < kShards; ++c) {
      AddFilled(home, static_cast<uint64_t>(c), c);
    }
  }
  bool Holds(const HostWindow& window, uint64_t seed) {
    return SameBytes({window.bytes().get(), 6000}, Filled(seed).span());
  }
  void CloseAll(std::vector<HostWindow> windows) {
    for (HostWindow& window : windows) {
      store_->CloseWindow(std::move(window), Event());
    }
  }
  std::vector<WindowRequest> Requests(const std::vector<int>& chunks,
                                      WindowMode mode) {
    std::vector<WindowRequest> requests;
    for (int c : chunks) {
      WindowRequest request;
      request.chunk = ChunkId(c);
      request.range = kWhole;
      request.mode = mode;
      request.cause = RunCause::kOptimizer;
      requests.push_back(request);
    }
    return requests;
  }
};

TEST_F(ShardStoreWaitTest, AWindowWaitsForTheSlotOfAnother) {
  for (Tier home : {Tier::kNvme, Tier::kDevice}) {
    OpenWith(1, home);
    HostWindow first = OpenWhole(ChunkId(0), WindowMode::kRead);
    HostWindow second = OpenWhole(ChunkId(1), WindowMode::kRead);
    EXPECT_EQ(second.data, nullptr);
    EXPECT_FALSE(second.ready.done());
    EXPECT_EQ(store_->staging().waiting(), 1);
    EventSource worked;
    store_->CloseWindow(std::move(first), worked.event());
    EXPECT_EQ(store_->staging().waiting(), 0);
    EXPECT_FALSE(second.ready.done()) << "the slot is still worked on";
    worked.Complete();
    ASSERT_THAT(second.ready.Wait(), IsOk());
    EXPECT_TRUE(Holds(second, 1));
    store_->CloseWindow(std::move(second), Event());
    Stop();
  }
}

// A lane must not stand still for what can only go on behind it: windows on the
// device go home on the lane on which loads of such shards wait for them.
TEST_F(ShardStoreWaitTest, TheWayHomeIsNeverBehindWhoWaitsForIt) {
  Open(&workers_, 2);
  for (int c = 0; c < kShards; ++c) {
    AddFilled(Tier::kDevice, static_cast<uint64_t>(c), c);
  }
  HostWindow held = OpenWhole(ChunkId(0), WindowMode::kReadWrite);
  HostWindow also = OpenWhole(ChunkId(2), WindowMode::kReadWrite);
  HostWindow waits = OpenWhole(ChunkId(1), WindowMode::kReadWrite);
  WorkerLane host("host", &workers_);
  host.Wait(waits.ready);
  store_->CloseWindow(std::move(waits), host.Record());
  AlignedBytes loaded(kShard);
  AlignedBytes loaded_other(kShard);
  const Event load = LoadWhole(ChunkId(1), loaded);
  const Event other = LoadWhole(ChunkId(3), loaded_other);
  store_->CloseWindow(std::move(held), Event());
  store_->CloseWindow(std::move(also), Event());
  ASSERT_THAT(load.Wait(), IsOk());
  ASSERT_THAT(other.Wait(), IsOk());
  EXPECT_TRUE(SameBytes(loaded.span(), Filled(1).span()));
}

TEST_F(ShardStoreWaitTest, WindowsOpenedTogetherGetTheirSlotsTogether) {
  OpenWith(2, Tier::kNvme);
  HostWindow held = OpenWhole(ChunkId(0), WindowMode::kRead);
  ASSERT_OK_AND_ASSIGN(
      std::vector<HostWindow> pair,
      store_->OpenWindows(Requests({1, 2}, WindowMode::kRead)));
  HostWindow last = OpenWhole(ChunkId(3), WindowMode::kRead);
  EXPECT_EQ(store_->staging().here(), 1) << "half of a pair is of no use";
  store_->CloseWindow(std::move(held), Event());
  ASSERT_THAT(pair[0].ready.Wait(), IsOk());
  ASSERT_THAT(pair[1].ready.Wait(), IsOk());
  EXPECT_TRUE(Holds(pair[0], 1));
  EXPECT_TRUE(Holds(pair[1], 2));
  EXPECT_FALSE(last.ready.done());
  CloseAll(std::move(pair));
  ASSERT_THAT(last.ready.Wait(), IsOk());
  EXPECT_TRUE(Holds(last, 3));
  store_->CloseWindow(std::move(last), Event());
}

TEST_F(ShardStoreWaitTest, WhatTheRingCouldNeverServeIsRefusedWithTheNumbers) {
  OpenWith(2, Tier::kNvme);
  EXPECT_THAT(
      store_->OpenWindows(Requests({0, 1, 2}, WindowMode::kReadWrite)).status(),
      StatusIs(ErrorCode::kInfeasible, Says("3 staging slots", "there are 2")));
  // Nothing of it is left: the shards may be used otherwise.
  CloseAll(*store_->OpenWindows(Requests({0, 1}, WindowMode::kReadWrite)));
  ExpectHolds(ChunkId(2), Filled(2).span());
}

TEST_F(ShardStoreWaitTest, CallsThatBlockDoNotWaitForTheirCaller) {
  OpenWith(1, Tier::kNvme);
  AlignedBytes memory(kShard);
  HostWindow window = OpenWhole(ChunkId(0), WindowMode::kRead);
  EXPECT_THAT(store_->ReadNow(ChunkId(1), kParam, kWhole, memory.data()),
              StatusIs(ErrorCode::kFailedPrecondition,
                       Says("all 1 staging slots", "1 windows")));
  HostWindow waits = OpenWhole(ChunkId(1), WindowMode::kRead);
  EXPECT_THAT(store_->WriteNow(ChunkId(2), kParam, memory.data()),
              StatusIs(ErrorCode::kFailedPrecondition,
                       Says("1 requests wait", "2 open windows")));
  EXPECT_THAT(store_->Drain(),
              StatusIs(ErrorCode::kFailedPrecondition, Says("1 requests")));
  EXPECT_THAT(store_->Close(),
              StatusIs(ErrorCode::kFailedPrecondition, Says("2 windows")));
  store_->CloseWindow(std::move(window), Event());
  store_->CloseWindow(std::move(waits), Event());
  EXPECT_THAT(store_->Drain(), IsOk());
  EXPECT_THAT(store_->ReadNow(ChunkId(1), kParam, kWhole, memory.data()),
              IsOk());
  EXPECT_THAT(store_->Close(), IsOk());
}

TEST_F(ShardStoreWaitTest, AWaitingLoadThatIsTakenBackNeverReadsTheDrive) {
  OpenWith(1, Tier::kNvme);
  HostWindow window = OpenWhole(ChunkId(0), WindowMode::kRead);
  ASSERT_THAT(window.ready.Wait(), IsOk());
  AlignedBytes memory(kShard);
  LoadTicket ticket;
  const Event load =
      LoadWhole(ChunkId(1), memory, RunCause::kPrefetch, &ticket);
  const int64_t reads = faults_->count(IoDirection::kRead);
  const Bytes to_device = moved(Tier::kHost, Tier::kDevice);
  EXPECT_TRUE(store_->Cancel(ticket));
  EXPECT_FALSE(store_->Cancel(ticket)) << "once";
  store_->CloseWindow(std::move(window), Event());
  EXPECT_THAT(load.Wait(), IsOk());
  EXPECT_THAT(store_->Drain(), IsOk());
  EXPECT_EQ(faults_->count(IoDirection::kRead), reads);
  EXPECT_EQ(moved(Tier::kHost, Tier::kDevice), to_device);
  EXPECT_EQ(store_->loads_cancelled(), 1);
  EXPECT_EQ(store_->staging().here(), 1);
}

// The owner's own events come in turn, too.
TEST_F(ShardStoreWaitTest, WritersAndReadersOutsideTheStoreComeInTurn) {
  Open(&workers_, 1);
  AddFilled(Tier::kNvme, 0, 0);
  AddFilled(Tier::kDevice, 1, 1);
  HostWindow held = OpenWhole(ChunkId(0), WindowMode::kRead);
  AlignedBytes loaded(kShard);
  const Event load = LoadWhole(ChunkId(0), loaded);
  const Event before = LoadWhole(ChunkId(1), loaded);  // waits behind
  const Event may_write = store_->WriteReady(ChunkId(1), kParam);
  EXPECT_FALSE(may_write.done());
  EventSource writes;
  store_->SetWritten(ChunkId(1), kParam, writes.event());
  AlignedBytes after(kShard);
  const Event second = LoadWhole(ChunkId(1), after);
  store_->CloseWindow(std::move(held), Event());
  ASSERT_THAT(before.Wait(), IsOk());
  ASSERT_THAT(may_write.Wait(), IsOk());
  EXPECT_FALSE(second.done()) << "what it reads is being written";
  writes.Complete();
  ASSERT_THAT(second.Wait(), IsOk());
  ASSERT_THAT(load.Wait(), IsOk());
}

// Turn by turn: a slot that is given back while its last user still works is
// taken on, and its next user starts exactly when that work is over.
TEST_F(ShardStoreWaitTest, EveryTurnOfALoadThatWaitsForAWindow) {
  Open(&manual_, 1);
  for (int c = 0; c < 2; ++c) Add(Tier::kDevice, c);
  std::memcpy(store_->device_data(ChunkId(1), kParam), Filled(1).data(), 6000);
  store_->SetWritten(ChunkId(1), kParam, Event());
  HostWindow first = OpenWhole(ChunkId(0), WindowMode::kWrite);
  ASSERT_TRUE(first.ready.done());
  HostWindow second = OpenWhole(ChunkId(1), WindowMode::kRead);
  EventSource worked;
  manual_.RunAll();
  EXPECT_FALSE(second.ready.done());
  store_->CloseWindow(std::move(first), worked.event());
  manual_.RunAll();
  EXPECT_FALSE(second.ready.done()) << "the slot is written from";
  EXPECT_FALSE(store_->written(ChunkId(0), kParam).done());
  worked.Complete();
  EXPECT_FALSE(second.ready.done());
  manual_.RunAll();
  EXPECT_TRUE(store_->written(ChunkId(0), kParam).done());
  EXPECT_TRUE(second.ready.done());
  EXPECT_TRUE(Holds(second, 1));
  store_->CloseWindow(std::move(second), Event());
}

}  // namespace
}  // namespace castor
