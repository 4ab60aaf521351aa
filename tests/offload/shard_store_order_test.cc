// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Which moves of a ShardStore wait for which, turn by turn.

#include <cstring>
#include <utility>

#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "gtest/gtest.h"
#include "offload/event.h"
#include "offload/shard_store.h"
#include "placement/run_event.h"
#include "tests/offload/shard_store_fixture.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/manual_executor.h"

namespace castor {
namespace {

using ShardStoreOrderTest = ShardStoreFixture;

TEST_F(ShardStoreOrderTest, MovesWaitForTheirStart) {
  Open(&manual_);
  const ChunkId chunk = AddFilled(Tier::kHost, 1);
  AlignedBytes loaded(kShard);
  EventSource begin;
  const Event load = store_->Load(chunk, kParam, kWhole, loaded.data(),
                                  begin.event(), RunCause::kDemand);
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
  const Event store = store_->Store(written, kParam, kWhole, source.data(),
                                    begin.event(), RunCause::kGradient);
  const Event load_other = store_->Load(
      other, kParam, kWhole, loaded_other.data(), Event(), RunCause::kDemand);
  const Event load = store_->Load(written, kParam, kWhole, loaded.data(),
                                  Event(), RunCause::kDemand);
  manual_.RunAll();
  EXPECT_TRUE(load_other.done());
  EXPECT_FALSE(load.done());
  begin.Complete();
  manual_.RunAll();
  EXPECT_TRUE(store.done());
  EXPECT_TRUE(load.done());
  EXPECT_TRUE(SameBytes(loaded.span(), source.span()));
}

TEST_F(ShardStoreOrderTest, AStoreWaitsForLoadsOfItsShard) {
  Open(&manual_);
  const ChunkId chunk = AddFilled(Tier::kHost, 1);
  const AlignedBytes source = Filled(2);
  AlignedBytes loaded(kShard);
  EventSource begin;
  const Event load = store_->Load(chunk, kParam, kWhole, loaded.data(),
                                  begin.event(), RunCause::kDemand);
  const Event store = store_->Store(chunk, kParam, kWhole, source.data(),
                                    Event(), RunCause::kGradient);
  manual_.RunAll();
  EXPECT_FALSE(store.done());
  begin.Complete();
  manual_.RunAll();
  EXPECT_TRUE(store.done());
  EXPECT_TRUE(SameBytes(loaded.span(), Filled(1).span()))
      << "what was there when the load was queued";
}

TEST_F(ShardStoreOrderTest,
       AWindowThatWritesWaitsForReadersOneThatReadsDoesNot) {
  for (Tier home : {Tier::kHost, Tier::kDevice}) {
    Open(&manual_);
    const ChunkId chunk = Add(home);
    EventSource reader;
    store_->AddReader(chunk, kParam, reader.event());
    HostWindow reads = store_->OpenWindow(
        chunk, kParam, kWhole, WindowMode::kRead, RunCause::kOptimizer);
    manual_.RunAll();
    EXPECT_TRUE(reads.ready.done()) << TierName(home);
    store_->CloseWindow(std::move(reads), Event());
    HostWindow writes = store_->OpenWindow(
        chunk, kParam, kWhole, WindowMode::kWrite, RunCause::kOptimizer);
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

TEST_F(ShardStoreOrderTest, ALoadWaitsForTheWorkInAWindowClosedBefore) {
  Open(&manual_);
  const ChunkId chunk = AddFilled(Tier::kHost, 1);
  HostWindow window = store_->OpenWindow(
      chunk, kParam, kWhole, WindowMode::kReadWrite, RunCause::kOptimizer);
  ASSERT_TRUE(window.ready.done());
  std::byte* const data = window.data;
  EventSource worked;
  store_->CloseWindow(std::move(window), worked.event());
  AlignedBytes loaded(kShard);
  const Event load = store_->Load(chunk, kParam, kWhole, loaded.data(), Event(),
                                  RunCause::kDemand);
  manual_.RunAll();
  EXPECT_FALSE(load.done());
  std::memcpy(data, Filled(2).data(), 6000);
  worked.Complete();
  manual_.RunAll();
  EXPECT_TRUE(load.done());
  EXPECT_TRUE(SameBytes(loaded.span(), Filled(2).span()));
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

}  // namespace
}  // namespace castor
