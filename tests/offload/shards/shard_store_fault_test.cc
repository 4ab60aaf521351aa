// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a ShardStore does when the drive fails, and what it tells the recorder.

#include <atomic>
#include <thread>
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
#include "offload/shards/shard_store.h"
#include "offload/shards/staging_ring.h"
#include "placement/run_event.h"
#include "tests/offload/shards/shard_store_fixture.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/fake_clock.h"
#include "tests/support/fakes/faulty_io_queue.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using ShardStoreFaultTest = ShardStoreFixture;

TEST_F(ShardStoreFaultTest, AReadThatFailsFailsItsMoveAndIsHeardOnce) {
  for (IoFault fault : {IoFault::kFail, IoFault::kCorrupt, IoFault::kHalf}) {
    failures_ = 0;
    Open(&workers_);
    const ChunkId chunk = AddFilled(Tier::kNvme, 1);
    const ChunkId host = AddFilled(Tier::kHost, 2, 1);
    faults_->Inject(IoDirection::kRead, faults_->count(IoDirection::kRead) + 1,
                    fault);
    AlignedBytes memory(kShard);
    const Event load = LoadWhole(chunk, memory);
    EXPECT_THAT(load.Wait(),
                StatusIs(fault == IoFault::kFail ? ErrorCode::kIoError
                                                 : ErrorCode::kDataLoss,
                         Says("param of chunk 0")));
    EXPECT_EQ(failures(), 1) << "and before the move is done";
    EXPECT_EQ(failure().code(), load.status().code());
    // What comes after on the same lane does not pretend to have worked.
    EXPECT_FALSE(LoadWhole(host, memory).Wait().ok());
    Stop();
    EXPECT_EQ(failures(), 1);
  }
}

TEST_F(ShardStoreFaultTest, AWriteThatNobodyWaitsForIsHeardWhenItFails) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(Tier::kNvme, 1);
  faults_->Inject(IoDirection::kWrite, faults_->count(IoDirection::kWrite) + 1,
                  IoFault::kFail);
  const AlignedBytes source = Filled(2);
  EXPECT_THAT(StoreWhole(chunk, source).Wait(), IsOk())
      << "the source is free: the copy to staging worked";
  EXPECT_FALSE(store_->written(chunk, kParam).Wait().ok());
  EXPECT_EQ(failures(), 1);
  AlignedBytes memory(kShard);
  EXPECT_THAT(LoadWhole(chunk, memory).Wait(),
              StatusIs(ErrorCode::kIoError, Says("injected")))
      << "the old bytes are not what was asked for";
  Stop();
  EXPECT_EQ(failures(), 1);
}

TEST_F(ShardStoreFaultTest, AFailureAtStartIsReturnedAndLosesNoStaging) {
  Open(&workers_, 2);
  const ChunkId chunk = Add(Tier::kNvme);
  const AlignedBytes source = Filled(1);
  for (int i = 1; i <= 5; ++i) {
    faults_->Inject(IoDirection::kWrite, i, IoFault::kFail);
    EXPECT_FALSE(store_->WriteNow(chunk, kParam, source.data()).ok());
  }
  AlignedBytes memory(kShard);
  EXPECT_FALSE(store_->ReadNow(chunk, kParam, kWhole, memory.data()).ok());
  EXPECT_EQ(store_->staging().here(), 2);
}

TEST_F(ShardStoreFaultTest, WorkThatFailsInAWindowNeverReachesTheDrive) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(Tier::kNvme, 1);
  HostWindow window = OpenWhole(chunk, WindowMode::kReadWrite);
  ASSERT_THAT(window.ready.Wait(), IsOk());
  const int64_t writes = faults_->count(IoDirection::kWrite);
  store_->CloseWindow(std::move(window),
                      Event::Failed(Internal("the work failed")));
  EXPECT_THAT(store_->written(chunk, kParam).Wait(),
              StatusIs(ErrorCode::kInternal, Says("the work failed")));
  EXPECT_EQ(faults_->count(IoDirection::kWrite), writes);
  EXPECT_EQ(failures(), 1);
}

TEST_F(ShardStoreFaultTest, EveryMoveIsRecordedOnEachLinkWithItsTimes) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(Tier::kNvme, 1, 2);
  events_.Take();
  clock_.AdvanceNs(1000);
  AlignedBytes memory(kShard);
  EventSource begin;
  const Event load = store_->Load(chunk, kParam, {Bytes(0), Bytes(600)},
                                  memory.data(), Event(), RunCause::kPrefetch);
  ASSERT_THAT(load.Wait(), IsOk());
  std::vector<RunEvent> events = events_.Take();
  ASSERT_EQ(events.size(), 2u);
  RunEvent want;
  want.kind = RunEventKind::kTransfer;
  want.rank = 3;
  want.step = 7;
  want.chunk = 2;
  want.cause = RunCause::kPrefetch;
  want.from = Tier::kNvme;
  want.to = Tier::kHost;
  want.bytes = kSlot.count();
  want.begin_ns = want.end_ns = 1000;
  EXPECT_EQ(events[0], want);
  want.from = Tier::kHost;
  want.to = Tier::kDevice;
  want.bytes = 600;
  EXPECT_EQ(events[1], want);
}

TEST_F(ShardStoreFaultTest,
       ATransferOfTheDriveBeginsWhenItMayAndEndsWhenItDoes) {
  Open(&workers_);
  const ChunkId chunk = AddFilled(Tier::kNvme, 1);
  events_.Take();
  faults_->Hold();
  EventSource worked;
  HostWindow window = OpenWhole(chunk, WindowMode::kWrite);
  store_->CloseWindow(std::move(window), worked.event());
  clock_.AdvanceNs(100);
  worked.Complete();
  clock_.AdvanceNs(20);
  faults_->Release();
  ASSERT_THAT(store_->written(chunk, kParam).Wait(), IsOk());
  const std::vector<RunEvent> events = events_.Take();
  ASSERT_EQ(events.size(), 1u) << "recorded before the move is done";
  EXPECT_EQ(events[0].begin_ns, 100);
  EXPECT_EQ(events[0].end_ns, 120);
  EXPECT_EQ(events[0].to, Tier::kNvme);
}

TEST_F(ShardStoreFaultTest,
       RandomTransfersAreAllRecordedAndNoneBeginsAfterItsEnd) {
  // A clock that moves under the transfers.
  Open(&workers_);
  std::atomic<bool> stop = false;
  std::thread ticker([&] {
    while (!stop) clock_.AdvanceNs(1);
  });
  clock_.AdvanceNs(1);
  for (int c = 0; c < kShards; ++c) {
    AddFilled(Tier::kNvme, static_cast<uint64_t>(c), c);
  }
  WorkerLane host_lane("host", &workers_);
  for (int i = 0; i < 100; ++i) {
    HostWindow window = store_->OpenWindow(
        ChunkId(i % kShards), kParam, kWhole,
        i % 2 == 0 ? WindowMode::kReadWrite : WindowMode::kWrite,
        RunCause::kOptimizer);
    host_lane.Wait(window.ready);
    host_lane.Run([] { return OkStatus(); });
    store_->CloseWindow(std::move(window), host_lane.Record());
  }
  ASSERT_THAT(host_lane.Drain(), IsOk());
  Stop();
  stop = true;
  ticker.join();
  const std::vector<RunEvent> events = events_.Take();
  EXPECT_EQ(events.size(), 4u + 100u + 50u);
  for (const RunEvent& event : events) {
    EXPECT_GT(event.begin_ns, 0);
    EXPECT_LE(event.begin_ns, event.end_ns);
    EXPECT_EQ(event.bytes, kSlot.count());
  }
}

}  // namespace
}  // namespace castor
