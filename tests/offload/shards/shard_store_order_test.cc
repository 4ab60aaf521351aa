// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Which moves of a ShardStore wait for which, turn by turn.

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/shards/shard_store.h"
#include "placement/run_event.h"
#include "tests/offload/shards/shard_store_fixture.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/faulty_io_queue.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/fakes/manual_io_queue.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using ShardStoreCancelTest = ShardStoreFixture;
using ShardStoreOrderTest = ShardStoreFixture;

TEST_F(ShardStoreOrderTest, MovesWaitForTheirStart) {
  Open(&manual_);
  const ChunkId chunk = AddFilled(Tier::kHost, 1);
  AlignedBytes loaded(kShard);
  EventSource begin;
  const Event load = LoadAfter(begin, chunk, loaded);
  manual_.RunAll();
  EXPECT_FALSE(load.done());
  begin.Complete();
  manual_.RunAll();
  EXPECT_TRUE(load.done());
  EXPECT_TRUE(SameBytes(loaded.span(), Filled(1).span()));
}

TEST_F(ShardStoreOrderTest, ALoadWaitsForTheLastStoreOfItsShardAndNoOther) {
  Open(&manual_);
  const ChunkId written = AddFilled(Tier::kHost, 1, 0);
  const ChunkId other = AddFilled(Tier::kHost, 2, 1);
  const AlignedBytes source = Filled(3);
  AlignedBytes loaded(kShard);
  AlignedBytes loaded_other(kShard);
  EventSource begin;
  const Event store = StoreWhole(written, source, begin.event());
  const Event load_other = LoadWhole(other, loaded_other);
  const Event load = LoadWhole(written, loaded);
  manual_.RunAll();
  EXPECT_TRUE(load_other.done());
  EXPECT_FALSE(load.done());
  begin.Complete();
  manual_.RunAll();
  EXPECT_TRUE(store.done());
  EXPECT_TRUE(load.done());
  EXPECT_TRUE(SameBytes(loaded.span(), source.span()));
}

TEST_F(ShardStoreOrderTest,
       AWindowThatWritesWaitsForReadersOneThatReadsDoesNot) {
  for (Tier home : {Tier::kHost, Tier::kDevice}) {
    Open(&manual_);
    const ChunkId chunk = Add(home);
    EventSource reader;
    store_->AddReader(chunk, kParam, reader.event());
    HostWindow reads = OpenWhole(chunk, WindowMode::kRead);
    manual_.RunAll();
    EXPECT_TRUE(reads.ready.done()) << TierName(home);
    store_->CloseWindow(std::move(reads), Event());
    HostWindow writes = OpenWhole(chunk, WindowMode::kWrite);
    manual_.RunAll();
    if (home == Tier::kHost) {
      EXPECT_FALSE(writes.ready.done()) << "it is the shard's own memory";
    }
    store_->CloseWindow(std::move(writes), Event());
    manual_.RunAll();
    EXPECT_FALSE(store_->written(chunk, kParam).done());
    reader.Complete();
    manual_.RunAll();
    EXPECT_TRUE(store_->written(chunk, kParam).done());
    Stop();
  }
}

TEST_F(ShardStoreOrderTest, ReadersThatAreDoneAreForgotten) {
  Open(&manual_);
  const ChunkId chunk = Add(Tier::kDevice);
  for (int i = 0; i < 1000; ++i) {
    EventSource reader;
    store_->AddReader(chunk, kParam, reader.event());
    EXPECT_FALSE(store_->WriteReady(chunk, kParam).done());
    reader.Complete();
  }
  EXPECT_TRUE(store_->WriteReady(chunk, kParam).done());
  EventSource writer;
  store_->SetWritten(chunk, kParam, writer.event());
  EXPECT_FALSE(store_->WriteReady(chunk, kParam).done());
  writer.Complete();
}

// An optimizer that has asked for windows on everything is in the way of no
// fetch but those of its own shards.
TEST_F(ShardStoreOrderTest, AFetchPassesTheWindowsOfOtherShards) {
  for (const int64_t fetch_slots : {0, 1}) {
    SCOPED_TRACE(fetch_slots);
    Open(&manual_, 2 + fetch_slots, kShards, fetch_slots);
    const ChunkId updated = AddFilled(Tier::kNvme, 1, 0);
    const ChunkId other = AddFilled(Tier::kNvme, 2, 1);
    AlignedBytes demanded(kShard), ahead(kShard), after(kShard);
    // Each slot is taken, and its work has not begun.
    std::vector<EventSource> work(4);
    for (const EventSource& each : work) {
      HostWindow window = OpenWhole(updated, WindowMode::kReadWrite);
      store_->CloseWindow(std::move(window), each.event());
    }
    const Event demand = LoadWhole(other, demanded);
    const Event prefetch = LoadWhole(other, ahead, RunCause::kPrefetch);
    if (fetch_slots > 0) {
      ASSERT_THAT(Crank(demand), IsOk());
      ASSERT_THAT(Crank(prefetch), IsOk());
      EXPECT_TRUE(SameBytes(demanded.span(), Filled(2).span()));
      EXPECT_TRUE(SameBytes(ahead.span(), Filled(2).span()));
    }
    const Event load = LoadWhole(updated, after);
    manual_.RunAll();
    EXPECT_EQ(demand.done(), fetch_slots > 0);
    EXPECT_FALSE(load.done()) << "what it reads is not written yet";
    for (const EventSource& each : work) each.Complete();
    ASSERT_THAT(Crank(load), IsOk());
    ASSERT_THAT(Crank(prefetch), IsOk());
    Stop();
  }
}

// What a window brings back to the device is in the way of no fetch either.
TEST_F(ShardStoreOrderTest, AFetchPassesWhatComesBackToTheDevice) {
  Open(&manual_, 2);
  const ChunkId updated = Add(Tier::kDevice, 0);
  const ChunkId other = AddFilled(Tier::kHost, 2, 1);
  HostWindow window = OpenWhole(updated, WindowMode::kReadWrite);
  EventSource work;
  store_->CloseWindow(std::move(window), work.event());
  AlignedBytes loaded(kShard);
  ASSERT_THAT(Crank(LoadWhole(other, loaded)), IsOk());
  EXPECT_FALSE(store_->written(updated, kParam).done());
  work.Complete();
  ASSERT_THAT(Crank(store_->written(updated, kParam)), IsOk());
}

// What is fetched ahead: taken back before it begins, and never in the way of
// demand.

bool Untouched(AlignedBytes& bytes) {
  return std::ranges::all_of(bytes.span(),
                             [](std::byte b) { return b == std::byte{0}; });
}

TEST_F(ShardStoreCancelTest, ALoadThatHasNotBegunIsTakenBack) {
  for (Tier home : {Tier::kHost, Tier::kDevice}) {
    Open(&manual_);
    const ChunkId chunk = Add(home);
    AlignedBytes memory(kShard);
    std::ranges::fill(memory.span(), std::byte{0});
    EventSource after;
    LoadTicket ticket;
    const Event load =
        store_->Load(chunk, kParam, kWhole, memory.data(), after.event(),
                     RunCause::kPrefetch, &ticket);
    manual_.RunAll();
    EXPECT_TRUE(store_->Cancel(ticket));
    EXPECT_EQ(moved(home, Tier::kDevice), Bytes(0));
    after.Complete();
    manual_.RunAll();
    EXPECT_TRUE(load.done());
    EXPECT_THAT(load.status(), IsOk());
    EXPECT_TRUE(Untouched(memory));
    EXPECT_TRUE(events_.Take().empty()) << "it never happened";
    EXPECT_THAT(store_->Close(), IsOk());
    Stop();
  }
}

TEST_F(ShardStoreCancelTest, OneThatHasBegunIsNot) {
  Open(&manual_);
  const ChunkId chunk = AddFilled(Tier::kHost, 1);
  AlignedBytes memory(kShard);
  LoadTicket ticket;
  const Event load = LoadWhole(chunk, memory, RunCause::kPrefetch, &ticket);
  ASSERT_TRUE(manual_.RunOne());  // the turn that begins it
  EXPECT_FALSE(store_->Cancel(ticket));
  manual_.RunAll();
  EXPECT_TRUE(load.done());
  EXPECT_TRUE(SameBytes(memory.span(), Filled(1).span()));
  EXPECT_EQ(moved(Tier::kHost, Tier::kDevice), kShard);
  EXPECT_EQ(store_->loads_cancelled(), 0);
}

TEST_F(ShardStoreCancelTest, OnlyWhatIsFetchedAheadIsEverTakenBack) {
  Open(&manual_);
  const ChunkId chunk = AddFilled(Tier::kHost, 1);
  AlignedBytes memory(kShard);
  LoadTicket ticket;
  const Event load = LoadWhole(chunk, memory, RunCause::kDemand, &ticket);
  EXPECT_FALSE(store_->Cancel(ticket));
  EXPECT_FALSE(store_->Cancel(LoadTicket()));
  manual_.RunAll();
  EXPECT_TRUE(load.done());
  EXPECT_TRUE(SameBytes(memory.span(), Filled(1).span()));
}

TEST_F(ShardStoreCancelTest, OneWhoseReadIsUnderWayIsTakenBackAllTheSame) {
  Open(&workers_, 2);
  const ChunkId chunk = AddFilled(Tier::kNvme, 1);
  faults_->Hold();
  AlignedBytes memory(kShard);
  std::ranges::fill(memory.span(), std::byte{0});
  LoadTicket ticket;
  const Event load = LoadWhole(chunk, memory, RunCause::kPrefetch, &ticket);
  EXPECT_TRUE(store_->Cancel(ticket));
  EXPECT_FALSE(store_->staging().AllFree().done())
      << "the drive still writes to the slot";
  faults_->Release();
  ASSERT_THAT(load.Wait(), IsOk());
  EXPECT_TRUE(Untouched(memory));
  EXPECT_THAT(store_->staging().AllFree().Wait(), IsOk());
  // Nothing has failed: what comes later is served.
  ASSERT_THAT(LoadWhole(chunk, memory).Wait(), IsOk());
  EXPECT_TRUE(SameBytes(memory.span(), Filled(1).span()));
}

// The drive's time is for what is wanted.
TEST_F(ShardStoreCancelTest, OneWhoseReadWaitsForTheDriveNeverGoesThere) {
  const auto io = std::make_shared<ManualIo>(MiB(1));
  make_nvme_queue_ = [&](size_t) { return MakeManualIoQueue(io); };
  Open(&workers_, 2);
  {
    std::atomic<bool> filled = false;
    std::thread drive([&] {
      while (!filled) io->RunAll();
    });
    AddFilled(Tier::kNvme, 1);
    filled = true;
    drive.join();
  }
  AlignedBytes memory(kShard);
  std::ranges::fill(memory.span(), std::byte{0});
  LoadTicket ticket;
  const Event load =
      LoadWhole(ChunkId(0), memory, RunCause::kPrefetch, &ticket);
  EXPECT_EQ(moved(Tier::kNvme, Tier::kHost), kSlot);
  EXPECT_TRUE(store_->Cancel(ticket));
  EXPECT_EQ(moved(Tier::kNvme, Tier::kHost), Bytes(0));
  EXPECT_EQ(io->RunAll(), 0) << "its read is still queued";
  ASSERT_THAT(load.Wait(), IsOk());
  EXPECT_TRUE(Untouched(memory));
  EXPECT_THAT(store_->staging().AllFree().Wait(), IsOk());
  EXPECT_EQ(failures(), 0);
}

TEST_F(ShardStoreCancelTest, AReadThatFailsWhenNobodyWantsItFailsNothing) {
  Open(&workers_, 2);
  const ChunkId chunk = AddFilled(Tier::kNvme, 1);
  faults_->Hold();
  faults_->Inject(IoDirection::kRead, faults_->count(IoDirection::kRead) + 1,
                  IoFault::kFail);
  AlignedBytes memory(kShard);
  LoadTicket ticket;
  const Event load = LoadWhole(chunk, memory, RunCause::kPrefetch, &ticket);
  EXPECT_TRUE(store_->Cancel(ticket));
  faults_->Release();
  EXPECT_THAT(load.Wait(), IsOk());
  EXPECT_EQ(failures(), 0);
  EXPECT_THAT(LoadWhole(chunk, memory, RunCause::kPrefetch).Wait(), IsOk());
}

TEST_F(ShardStoreCancelTest, DemandDoesNotWaitForWhatIsFetchedAhead) {
  Open(&workers_, 2);
  const ChunkId drive = AddFilled(Tier::kNvme, 1);
  const ChunkId host = AddFilled(Tier::kHost, 2, 1);
  faults_->Hold();
  AlignedBytes ahead(kShard);
  AlignedBytes now(kShard);
  const Event later = LoadWhole(drive, ahead, RunCause::kPrefetch);
  EXPECT_THAT(LoadWhole(host, now).Wait(), IsOk());
  EXPECT_FALSE(later.done());
  faults_->Release();
  EXPECT_THAT(later.Wait(), IsOk());
  EXPECT_TRUE(SameBytes(ahead.span(), Filled(1).span()));
}

// Whoever comes first, the copy or its cancellation: the target is written
// whole or not at all, and the store says which.
TEST_F(ShardStoreCancelTest, ARaceBetweenTheTwoEndsInOneOrTheOther) {
  Open(&workers_, 3);
  record_ = false;
  AddFilled(Tier::kHost, 1, 0);
  AddFilled(Tier::kNvme, 1, 1);
  int64_t cancelled = 0;
  for (int round = 0; round < 400; ++round) {
    AlignedBytes memory(kShard);
    std::ranges::fill(memory.span(), std::byte{0});
    LoadTicket ticket;
    const Event load =
        LoadWhole(ChunkId(round % 2), memory, RunCause::kPrefetch, &ticket);
    for (int spin = 0; spin < round * 20; ++spin) {
      if (load.done()) break;
    }
    const bool back = store_->Cancel(ticket);
    ASSERT_THAT(load.Wait(), IsOk());
    cancelled += back;
    if (back) {
      ASSERT_TRUE(Untouched(memory));
    } else {
      ASSERT_TRUE(SameBytes(memory.span(), Filled(1).span()));
    }
  }
  EXPECT_EQ(store_->loads_cancelled(), cancelled);
}

}  // namespace
}  // namespace castor
