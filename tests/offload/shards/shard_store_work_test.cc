// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Work on windows that begins by urgency: QueueWork of a ShardStore.

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
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
#include "offload/shards/window_work.h"
#include "placement/run_event.h"
#include "tests/offload/shards/shard_store_fixture.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;

WindowRequest Whole(ChunkId chunk, WindowMode mode) {
  WindowRequest request;
  request.chunk = chunk;
  request.range = kWhole;
  request.mode = mode;
  request.cause = RunCause::kOptimizer;
  return request;
}

void Increment(std::byte* data) {
  for (int64_t i = 0; i < kShard.count(); ++i) {
    data[i] = static_cast<std::byte>(std::to_integer<int>(data[i]) + 1);
  }
}

AlignedBytes Incremented(uint64_t seed, int times = 1) {
  AlignedBytes bytes = Filled(seed);
  for (int i = 0; i < times; ++i) Increment(bytes.data());
  return bytes;
}

class WorkTest : public ShardStoreFixture {
 protected:
  // Of the shards that the work is on.
  virtual Tier home() const = 0;
  using Run =
      std::function<void(std::span<const WorkBytes> at, EventSource used)>;

  Event Queue(int64_t key, std::vector<WindowRequest> windows, Run run) {
    WindowWork work;
    work.windows = std::move(windows);
    work.key = key;
    work.run = std::move(run);
    return store_->QueueWork(std::move(work));
  }
  // With staging for work of so many windows.
  void OpenForWork(int64_t slots = 3) {
    Open(&manual_, 2 + slots, kShards, 0, slots);
  }
  // As AddFilled and ExpectHolds, without lanes, which nobody cranks meanwhile.
  ChunkId AddKnown(uint64_t seed, int32_t chunk = 0) {
    if (home() != Tier::kDevice) return AddFilled(home(), seed, chunk);
    const ChunkId id = Add(home(), chunk);
    std::memcpy(store_->device_data(id, kParam), Filled(seed).data(),
                static_cast<size_t>(kShard.count()));
    return id;
  }
  void ExpectKnown(ChunkId chunk, const AlignedBytes& want) {
    if (home() != Tier::kDevice) return ExpectHolds(chunk, want.span());
    EXPECT_EQ(std::memcmp(store_->device_data(chunk, kParam), want.data(),
                          static_cast<size_t>(kShard.count())),
              0);
  }
  // Adds one to each byte of the shard, and notes the key.
  void QueueIncrement(int64_t key, ChunkId chunk) {
    Queue(key, {Whole(chunk, WindowMode::kReadWrite)},
          [this, key](std::span<const WorkBytes> at, EventSource used) {
            Note(key);
            Increment(at[0].data);
            used.Complete();
          });
  }

  // Keys of work that has begun, on whichever thread.
  void Note(int64_t key) {
    std::lock_guard lock(mutex_);
    began_.push_back(key);
  }
  std::vector<int64_t> Began() {
    std::lock_guard lock(mutex_);
    return began_;
  }

 private:
  std::mutex mutex_;
  std::vector<int64_t> began_;  // guarded by mutex_
};

class ShardStoreWorkTest : public WorkTest,
                           public testing::WithParamInterface<Tier> {
 protected:
  Tier home() const override { return GetParam(); }
};

TEST_P(ShardStoreWorkTest, WhatIsWrittenGoesHomeAndIsCountedOnce) {
  OpenForWork();
  const ChunkId chunk = AddKnown(1);
  const Bytes away = moved(Tier::kHost, home());
  const Bytes here = moved(home(), Tier::kHost);
  QueueIncrement(1, chunk);
  EXPECT_THAT(Crank(store_->written(chunk, kParam)), IsOk());
  ExpectKnown(chunk, Incremented(1));
  if (home() == Tier::kHost) return;
  const Bytes size = home() == Tier::kNvme ? KiB(8) : kShard;
  EXPECT_EQ(moved(Tier::kHost, home()) - away, size);
  EXPECT_GE(moved(home(), Tier::kHost) - here, size);
}

TEST_P(ShardStoreWorkTest, LaterCallsAreOrderedBehindWorkThatHasNotBegun) {
  OpenForWork();
  const ChunkId chunk = AddKnown(1);
  EventSource reader;
  store_->AddReader(chunk, kParam, reader.event());
  QueueIncrement(1, chunk);
  QueueIncrement(2, chunk);
  AlignedBytes loaded(kShard);
  const Event load = LoadWhole(chunk, loaded);
  manual_.RunAll();
  EXPECT_FALSE(load.done());
  EXPECT_TRUE(Began().empty());
  reader.Complete();
  EXPECT_THAT(Crank(load), IsOk());
  EXPECT_THAT(Began(), ElementsAre(1, 2));
  EXPECT_TRUE(SameBytes(loaded.span(), Incremented(1, 2).span()));
}

TEST_P(ShardStoreWorkTest, OfWorkThatIsReadyTheMostUrgentBeginsNext) {
  if (home() == Tier::kHost) return;  // takes no slot, and begins at once
  OpenForWork(1);
  const ChunkId first = AddKnown(1, 0);
  const ChunkId second = AddKnown(2, 1);
  const ChunkId third = AddKnown(3, 2);
  EventSource used;
  Queue(9, {Whole(first, WindowMode::kReadWrite)},
        [&](std::span<const WorkBytes>, EventSource over) {
          Note(9);
          used.event().OnDone(
              [over](const Status& status) { over.Complete(status); });
        });
  while (Began().empty()) manual_.RunAll();
  QueueIncrement(5, second);
  QueueIncrement(2, third);
  manual_.RunAll();
  EXPECT_THAT(Began(), ElementsAre(9));
  used.Complete();
  EXPECT_THAT(Crank(store_->written(second, kParam)), IsOk());
  EXPECT_THAT(Began(), ElementsAre(9, 2, 5));
}

TEST_P(ShardStoreWorkTest, WorkThatWaitsHoldsNoSlot) {
  OpenForWork(1);
  const ChunkId waits = AddKnown(1, 0);
  const ChunkId ready = AddKnown(2, 1);
  EventSource reader;
  store_->AddReader(waits, kParam, reader.event());
  QueueIncrement(1, waits);
  QueueIncrement(2, ready);
  EXPECT_THAT(Crank(store_->written(ready, kParam)), IsOk());
  EXPECT_THAT(Began(), ElementsAre(2));
  reader.Complete();
  EXPECT_THAT(Crank(store_->written(waits, kParam)), IsOk());
  EXPECT_THAT(Began(), ElementsAre(2, 1));
}

TEST_P(ShardStoreWorkTest, WhatPassesIsCopiedAndItsMemoryFreeBeforeTheEnd) {
  OpenForWork();
  const ChunkId chunk = AddKnown(1);
  AlignedBytes gradient = Filled(2);
  EventSource there;
  WindowRequest passing = Whole(chunk, WindowMode::kScratch);
  passing.from = gradient.data();
  passing.after = there.event();
  EventSource begun;
  EventSource go;
  const Event copied =
      Queue(1, {passing, Whole(chunk, WindowMode::kWrite)},
            [&](std::span<const WorkBytes> at, EventSource used) {
              std::vector<WorkBytes> places(at.begin(), at.end());
              begun.Complete();
              go.event().OnDone([places, used](const Status&) {
                std::memcpy(places[1].to, places[0].data,
                            static_cast<size_t>(kShard.count()));
                used.Complete();
              });
            });
  manual_.RunAll();
  EXPECT_FALSE(copied.done());
  there.Complete();
  EXPECT_THAT(Crank(begun.event()), IsOk());
  EXPECT_TRUE(copied.done());
  FillRandom(gradient.span(), 9);  // somebody else has the memory now
  go.Complete();
  EXPECT_THAT(Crank(store_->written(chunk, kParam)), IsOk());
  ExpectKnown(chunk, Filled(2));
}

TEST_P(ShardStoreWorkTest, WhatDoesNotArriveIsNotWorkedOn) {
  OpenForWork();
  const ChunkId chunk = AddKnown(1);
  store_->SetWritten(chunk, kParam, Event::Failed(IoError("lost")));
  QueueIncrement(1, chunk);
  EXPECT_THAT(Crank(store_->written(chunk, kParam)),
              StatusIs(ErrorCode::kIoError));
  EXPECT_TRUE(Began().empty());
}

TEST_P(ShardStoreWorkTest, WorkThatTakesMoreSlotsThanItHasIsToldBefore) {
  OpenForWork(2);
  const ChunkId chunk = Add(home());
  const WindowRequest window = Whole(chunk, WindowMode::kReadWrite);
  const WindowRequest passing = Whole(chunk, WindowMode::kScratch);
  EXPECT_TRUE(store_->QueuesWork(std::vector{passing, window}));
  EXPECT_EQ(store_->QueuesWork(std::vector{passing, passing, window}),
            home() == Tier::kHost);
  EXPECT_FALSE(store_->QueuesWork(std::vector{passing, passing, passing}));
}

// Adds one to each byte. Work that writes aside puts new bytes aside.
void IncrementAside(const WorkBytes& bytes) {
  for (int64_t i = 0; i < kShard.count(); ++i) {
    bytes.to[i] =
        static_cast<std::byte>(std::to_integer<int>(bytes.data[i]) + 1);
  }
}

// Where a shard is at home and where its spare place is.
struct AsideTiers {
  Tier home;
  Tier spare;
};

class ShardStoreAsideTest : public WorkTest,
                            public testing::WithParamInterface<AsideTiers> {
 protected:
  Tier home() const override { return GetParam().home; }
  Tier spare() const { return GetParam().spare; }
  // Takes a spare place, and queues work that fills it.
  WorkDropped QueueAside(ChunkId chunk) {
    EXPECT_THAT(store_->TakeAside(chunk, kParam, spare(), 0), IsOk());
    WindowWork work;
    work.windows = {Whole(chunk, WindowMode::kReadWrite)};
    work.windows[0].aside = true;
    work.dropped = std::make_shared<std::atomic<bool>>(false);
    work.run = [this](std::span<const WorkBytes> at, EventSource used) {
      Note(0);
      IncrementAside(at[0]);
      used.Complete();
    };
    const WorkDropped dropped = work.dropped;
    store_->QueueWork(std::move(work));
    return dropped;
  }
  int64_t FreeSlots() { return pools_->pool(spare()).free_slots(0); }
};

TEST_P(ShardStoreAsideTest, TheHomeKeepsItsBytesUntilTheCommit) {
  OpenForWork();
  const ChunkId chunk = AddKnown(1);
  const int64_t free = FreeSlots();
  QueueAside(chunk);
  EXPECT_EQ(FreeSlots(), free - 1);
  AlignedBytes loaded(kShard);
  ASSERT_THAT(Crank(LoadWhole(chunk, loaded)), IsOk());
  while (Began().empty()) manual_.RunAll();
  EXPECT_TRUE(SameBytes(loaded.span(), Filled(1).span()));
  store_->CommitAside(chunk, kParam);
  ASSERT_THAT(Crank(LoadWhole(chunk, loaded)), IsOk());
  EXPECT_TRUE(SameBytes(loaded.span(), Incremented(1).span()));
  EXPECT_EQ(FreeSlots(), free);
}

TEST_P(ShardStoreAsideTest, ACommitMayComeBeforeTheWorkBegins) {
  OpenForWork();
  const ChunkId chunk = AddKnown(1);
  EventSource before;
  store_->SetWritten(chunk, kParam, before.event());
  QueueAside(chunk);
  AlignedBytes old(kShard);
  const Event load_old = LoadWhole(chunk, old);
  store_->CommitAside(chunk, kParam);
  AlignedBytes loaded(kShard);
  const Event load = LoadWhole(chunk, loaded);
  manual_.RunAll();
  EXPECT_TRUE(Began().empty());
  before.Complete();
  ASSERT_THAT(Crank(load), IsOk());
  ASSERT_THAT(Crank(load_old), IsOk());
  EXPECT_TRUE(SameBytes(old.span(), Filled(1).span()));
  EXPECT_TRUE(SameBytes(loaded.span(), Incremented(1).span()));
}

TEST_P(ShardStoreAsideTest, WhatIsDroppedIsAsIfItHadNotBeen) {
  OpenForWork();
  const ChunkId chunk = AddKnown(1);
  const int64_t free = FreeSlots();
  for (const bool begins : {true, false}) {
    EventSource before;
    store_->SetWritten(chunk, kParam, before.event());
    const WorkDropped dropped = QueueAside(chunk);
    if (begins) {
      before.Complete();
      while (Began().empty()) manual_.RunAll();
    }
    *dropped = true;
    store_->DropAside(chunk, kParam);
    EXPECT_EQ(FreeSlots(), free);
    if (!begins) before.Complete();
    AlignedBytes loaded(kShard);
    ASSERT_THAT(Crank(LoadWhole(chunk, loaded)), IsOk());
    EXPECT_TRUE(SameBytes(loaded.span(), Filled(1).span()));
  }
  EXPECT_EQ(Began().size(), 1u);
}

// The dropped work is less urgent than the work behind it on the same shard.
TEST_P(ShardStoreAsideTest, WorkBehindDroppedWorkHoldsNoPlace) {
  OpenForWork(2);
  const ChunkId chunk = AddKnown(1);
  const ChunkId other = AddKnown(2, 1);
  EventSource first, second;
  store_->SetWritten(chunk, kParam, first.event());
  store_->SetWritten(other, kParam, second.event());
  const auto queue = [&](ChunkId on, int64_t key, PickPlace place, bool aside) {
    WindowWork work;
    work.windows = {Whole(on, WindowMode::kReadWrite)};
    work.windows[0].aside = aside;
    work.key = key;
    work.place = place;
    if (aside) work.dropped = std::make_shared<std::atomic<bool>>(true);
    work.run = [this, key](std::span<const WorkBytes> at, EventSource used) {
      Note(key);
      Increment(at[0].data);
      used.Complete();
    };
    store_->QueueWork(std::move(work));
  };
  ASSERT_THAT(store_->TakeAside(chunk, kParam, spare(), 0), IsOk());
  queue(chunk, 9, PickPlace::kGivesWay, /*aside=*/true);
  store_->DropAside(chunk, kParam);
  // As a step's updates, in another order than was guessed.
  queue(chunk, 2, PickPlace::kHolds, /*aside=*/false);
  queue(other, 5, PickPlace::kHolds, /*aside=*/false);
  second.Complete();
  EXPECT_THAT(Crank(store_->written(other, kParam)), IsOk());
  first.Complete();
  EXPECT_THAT(Crank(store_->written(chunk, kParam)), IsOk());
  EXPECT_THAT(Began(), ElementsAre(5, 2));
  ExpectKnown(chunk, Incremented(1));
}

// The home, and the spare place for the next use, are as if there was no work.
TEST_P(ShardStoreAsideTest, WorkThatFailsLeavesTheHome) {
  OpenForWork();
  const ChunkId chunk = AddKnown(1);
  const int64_t free = FreeSlots();
  const auto queue = [&](bool aside, const Status& status) {
    WindowWork work;
    work.windows = {Whole(chunk, WindowMode::kReadWrite)};
    work.windows[0].aside = aside;
    if (aside) work.dropped = std::make_shared<std::atomic<bool>>(false);
    work.run = [this, aside, status](std::span<const WorkBytes> at,
                                     EventSource used) {
      Note(0);
      if (!aside) Increment(at[0].data);
      used.Complete(status);
    };
    store_->QueueWork(std::move(work));
  };
  ASSERT_THAT(store_->TakeAside(chunk, kParam, spare(), 0), IsOk());
  EXPECT_THAT(store_->AsideFailure(chunk, kParam), IsOk());
  queue(/*aside=*/true, IoError("the drive is gone"));
  while (Began().empty()) manual_.RunAll();
  manual_.RunAll();
  EXPECT_THAT(store_->AsideFailure(chunk, kParam),
              StatusIs(ErrorCode::kIoError, Says("the drive is gone")));
  store_->DropAside(chunk, kParam);
  EXPECT_EQ(FreeSlots(), free);
  queue(/*aside=*/false, OkStatus());
  EXPECT_THAT(Crank(store_->written(chunk, kParam)), IsOk());
  ExpectKnown(chunk, Incremented(1));
  QueueAside(chunk);
  store_->CommitAside(chunk, kParam);
  AlignedBytes loaded(kShard);
  ASSERT_THAT(Crank(LoadWhole(chunk, loaded)), IsOk());
}

TEST_P(ShardStoreAsideTest, WithoutAFreeSlotThereIsNoSparePlace) {
  OpenForWork();
  std::vector<ChunkId> chunks;
  for (int32_t c = 0; FreeSlots() > 0; ++c) chunks.push_back(Add(spare(), c));
  const ChunkId chunk =
      home() == spare() ? chunks.front() : Add(home(), kShards);
  EXPECT_THAT(store_->TakeAside(chunk, kParam, spare(), 0),
              StatusIs(ErrorCode::kTierFull));
}

INSTANTIATE_TEST_SUITE_P(Places, ShardStoreAsideTest,
                         testing::Values(AsideTiers{Tier::kDevice, Tier::kHost},
                                         AsideTiers{Tier::kHost, Tier::kHost},
                                         AsideTiers{Tier::kHost, Tier::kNvme},
                                         AsideTiers{Tier::kNvme, Tier::kNvme}),
                         [](const testing::TestParamInfo<AsideTiers>& info) {
                           return fmt::format("{}Spare{}",
                                              TierName(info.param.home),
                                              TierName(info.param.spare));
                         });

INSTANTIATE_TEST_SUITE_P(Homes, ShardStoreWorkTest,
                         testing::Values(Tier::kDevice, Tier::kHost,
                                         Tier::kNvme),
                         NameOfHome);

}  // namespace
}  // namespace castor
