// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Shards that are larger than a staging slot, of which one piece moves at once.

#include <algorithm>
#include <cstddef>
#include <random>
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
#include "offload/shards/host_window.h"
#include "offload/shards/shard_store.h"
#include "placement/run_event.h"
#include "tests/offload/shards/shard_store_fixture.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/faulty_io_queue.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

// Three pieces; the last one is short.
constexpr Bytes kPiece = KiB(4);
constexpr Bytes kLarge = KiB(10);
constexpr Bytes kPlace = KiB(12);

class ShardStorePiecesTest : public ShardStoreFixture {
 protected:
  // Every shard here is three times as large as a staging slot.
  void OpenLarge(Executor* executor, int64_t staging_slots = 2,
                 int64_t fetch_slots = 0) {
    OpenShaped(executor, kPlace, kShards, {kPiece, staging_slots}, fetch_slots);
  }
  ChunkId AddLarge(Tier home, int32_t chunk = 0) {
    EXPECT_THAT(
        store_->AddShard(ChunkId(chunk), kParam, home, 0, kLarge, kPiece),
        IsOk());
    return ChunkId(chunk);
  }
  void ExpectShard(ChunkId chunk, std::span<const std::byte> want) {
    AlignedBytes got(kLarge);
    ASSERT_THAT(store_->ReadNow(chunk, kParam, {Bytes(0), kLarge}, got.data()),
                IsOk());
    EXPECT_TRUE(SameBytes(got.span(), want));
  }
  static AlignedBytes Random(uint64_t seed) {
    AlignedBytes bytes(kLarge);
    FillRandom(bytes.span(), seed);
    return bytes;
  }
};

TEST_F(ShardStorePiecesTest, AreWrittenReadLoadedAndStoredAsOne) {
  for (const Tier home : kAllTiers) {
    SCOPED_TRACE(TierName(home));
    OpenLarge(&workers_);
    const ChunkId chunk = AddLarge(home);
    EXPECT_EQ(store_->bytes(chunk, kParam), kLarge);
    EXPECT_EQ(store_->piece(chunk, kParam), kPiece);
    const AlignedBytes first = Random(1);
    ASSERT_THAT(store_->WriteNow(chunk, kParam, first.data()), IsOk());
    ExpectShard(chunk, first.span());
    // A range that begins and ends inside of pieces.
    const ByteRange range{Bytes(1000), KiB(9)};
    AlignedBytes part(range.size());
    ASSERT_THAT(store_->ReadNow(chunk, kParam, range, part.data()), IsOk());
    EXPECT_TRUE(SameBytes(part.span(), first.span().subspan(1000, 8216)));
    for (const RunCause cause : {RunCause::kDemand, RunCause::kPrefetch}) {
      AlignedBytes loaded(range.size());
      LoadTicket ticket;
      const Event load = store_->Load(chunk, kParam, range, loaded.data(),
                                      Event(), cause, &ticket);
      store_->Raise(ticket);
      ASSERT_THAT(load.Wait(), IsOk());
      EXPECT_TRUE(SameBytes(loaded.span(), part.span()));
    }
    const AlignedBytes second = Random(2);
    ASSERT_THAT(store_
                    ->Store(chunk, kParam, {Bytes(0), kLarge}, second.data(),
                            Event(), RunCause::kGradient)
                    .Wait(),
                IsOk());
    ExpectShard(chunk, second.span());
    EXPECT_THAT(store_->Close(), IsOk());
    Stop();
  }
}

TEST_F(ShardStorePiecesTest, EachPieceHasAWindowOfItsOwn) {
  for (const Tier home : kAllTiers) {
    SCOPED_TRACE(TierName(home));
    OpenLarge(&workers_, 3);
    const ChunkId chunk = AddLarge(home);
    const AlignedBytes first = Random(3);
    ASSERT_THAT(store_->WriteNow(chunk, kParam, first.data()), IsOk());
    // Open at one time, closed in another order.
    std::vector<HostWindow> windows;
    for (const ByteRange range :
         {ByteRange{Bytes(0), KiB(4)}, ByteRange{KiB(4), KiB(8)},
          ByteRange{KiB(8), kLarge}}) {
      windows.push_back(store_->OpenWindow(
          chunk, kParam, range, WindowMode::kReadWrite, RunCause::kOptimizer));
    }
    AlignedBytes want = Random(3);
    for (const size_t i : {1u, 2u, 0u}) {
      HostWindow& window = windows[i];
      ASSERT_THAT(window.ready.Wait(), IsOk());
      const auto size = static_cast<size_t>(window.range.size().count());
      const auto at = static_cast<size_t>(window.range.begin.count());
      EXPECT_TRUE(SameBytes({window.bytes().get(), size},
                            first.span().subspan(at, size)));
      for (size_t b = 0; b < size; ++b) {
        window.bytes().get()[b] ^= std::byte{0xFF};
        want.span()[at + b] ^= std::byte{0xFF};
      }
      store_->CloseWindow(std::move(window), Event());
    }
    ExpectShard(chunk, want.span());
    EXPECT_THAT(store_->Close(), IsOk());
    Stop();
  }
}

// A write of one piece is waited for by what reads that piece, not by others.
TEST_F(ShardStorePiecesTest, AreOrderedEachForItself) {
  OpenLarge(&manual_, 4);
  const ChunkId chunk = AddLarge(Tier::kHost);
  const AlignedBytes first = Random(4);
  ASSERT_THAT(store_->WriteNow(chunk, kParam, first.data()), IsOk());
  EventSource work;
  HostWindow window =
      store_->OpenWindow(chunk, kParam, {Bytes(0), KiB(4)},
                         WindowMode::kReadWrite, RunCause::kOptimizer);
  store_->CloseWindow(std::move(window), work.event());
  AlignedBytes memory(kLarge);
  const auto load = [&](Bytes begin, Bytes end) {
    return store_->Load(chunk, kParam, {begin, end}, memory.data(), Event(),
                        RunCause::kDemand);
  };
  const Event other = load(KiB(4), kLarge);
  const Event same = load(Bytes(0), KiB(1));
  const Event whole = load(Bytes(0), kLarge);
  manual_.RunAll();
  EXPECT_TRUE(other.done());
  EXPECT_FALSE(same.done());
  EXPECT_FALSE(whole.done());
  EXPECT_FALSE(store_->written(chunk, kParam).done());
  EXPECT_FALSE(store_->WriteReady(chunk, kParam).done());
  work.Complete();
  manual_.RunAll();
  EXPECT_TRUE(same.done() && whole.done());
  EXPECT_TRUE(store_->written(chunk, kParam).done());
}

TEST_F(ShardStorePiecesTest, MoveFromAnyTierToAnyOther) {
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      if (from == to) continue;
      SCOPED_TRACE(testing::Message()
                   << TierName(from) << " to " << TierName(to));
      OpenLarge(&workers_, 1);
      const ChunkId chunk = AddLarge(from);
      const AlignedBytes bytes = Random(5);
      ASSERT_THAT(store_->WriteNow(chunk, kParam, bytes.data()), IsOk());
      Result<Event> moved = store_->Move(chunk, kParam, to, RunCause::kRoom);
      ASSERT_THAT(moved, IsOk());
      ASSERT_THAT(moved->Wait(), IsOk());
      EXPECT_EQ(store_->home(chunk, kParam), to);
      ExpectShard(chunk, bytes.span());
      store_->Vacate(chunk, kParam);
      ASSERT_THAT(store_->Reoccupy(chunk, kParam), IsOk());
      ASSERT_THAT(store_->WriteNow(chunk, kParam, bytes.data()), IsOk());
      ExpectShard(chunk, bytes.span());
      EXPECT_THAT(store_->Close(), IsOk());
      Stop();
    }
  }
}

TEST_F(ShardStorePiecesTest, AreTakenBackTogetherOrNotAtAll) {
  for (const Tier home : kAllTiers) {
    SCOPED_TRACE(TierName(home));
    OpenLarge(&workers_, 2);
    const ChunkId chunk = AddLarge(home);
    const AlignedBytes bytes = Random(7);
    ASSERT_THAT(store_->WriteNow(chunk, kParam, bytes.data()), IsOk());
    const auto moved_before = moved(Tier::kNvme, Tier::kHost);
    AlignedBytes untouched(kLarge), loaded(kLarge);
    EventSource gate;
    LoadTicket early, late;
    const Event dropped =
        store_->Load(chunk, kParam, {Bytes(0), kLarge}, untouched.data(),
                     gate.event(), RunCause::kPrefetch, &early);
    EXPECT_TRUE(store_->Cancel(early));
    EXPECT_FALSE(store_->Cancel(early)) << "it is taken back already";
    gate.Complete();
    ASSERT_THAT(dropped.Wait(), IsOk());
    EXPECT_TRUE(std::ranges::all_of(
        untouched.span(), [](std::byte byte) { return byte == std::byte{0}; }));
    EXPECT_LE(moved(Tier::kNvme, Tier::kHost) - moved_before, kPlace);
    const Event load =
        store_->Load(chunk, kParam, {Bytes(0), kLarge}, loaded.data(), Event(),
                     RunCause::kPrefetch, &late);
    ASSERT_THAT(load.Wait(), IsOk());
    EXPECT_FALSE(store_->Cancel(late)) << "it is over";
    EXPECT_TRUE(SameBytes(loaded.span(), bytes.span()));
    EXPECT_THAT(store_->Close(), IsOk());
    Stop();
  }
}

TEST_F(ShardStorePiecesTest, AFailureOfOnePieceFailsTheLoad) {
  OpenLarge(&workers_);
  const ChunkId chunk = AddLarge(Tier::kNvme);
  const AlignedBytes bytes = Random(6);
  ASSERT_THAT(store_->WriteNow(chunk, kParam, bytes.data()), IsOk());
  faults_->Inject(IoDirection::kRead, faults_->count(IoDirection::kRead) + 2,
                  IoFault::kFail);
  AlignedBytes loaded(kLarge);
  EXPECT_THAT(store_
                  ->Load(chunk, kParam, {Bytes(0), kLarge}, loaded.data(),
                         Event(), RunCause::kDemand)
                  .Wait(),
              StatusIs(ErrorCode::kIoError));
}

// Random work on random pieces, against bytes in memory.
TEST_F(ShardStorePiecesTest, RandomWorkKeepsTheBytes) {
  std::mt19937_64 random(TestSeed(36));
  for (int round = 0; round < 20; ++round) {
    const auto fetch_slots = static_cast<int64_t>(random() % 2);
    OpenLarge(&workers_, 1 + fetch_slots + static_cast<int64_t>(random() % 3),
              fetch_slots);
    std::vector<AlignedBytes> want;
    for (int32_t c = 0; c < kShards; ++c) {
      AddLarge(kAllTiers[random() % 3], c);
      want.push_back(Random(random()));
      ASSERT_THAT(store_->WriteNow(ChunkId(c), kParam, want.back().data()),
                  IsOk());
    }
    std::vector<std::pair<Event, size_t>> loads;  // and what they must have
    std::vector<AlignedBytes> loaded, expected;
    loaded.reserve(200);
    expected.reserve(200);
    for (int i = 0; i < 60; ++i) {
      const auto c = static_cast<int32_t>(random() % kShards);
      const ChunkId chunk(c);
      const auto piece = static_cast<int64_t>(random() % 3);
      const ByteRange range{kPiece * piece,
                            std::min(kPiece * (piece + 1), kLarge)};
      switch (random() % 3) {
        case 0: {
          HostWindow window =
              store_->OpenWindow(chunk, kParam, range, WindowMode::kReadWrite,
                                 RunCause::kOptimizer);
          const EventSource worked;
          const auto size = static_cast<size_t>(range.size().count());
          window.ready.OnDone(
              [bytes = window.bytes(), size, worked](const Status& status) {
                for (size_t b = 0; status.ok() && b < size; ++b) {
                  bytes.get()[b] ^= std::byte{0x5A};
                }
                worked.Complete(status);
              });
          store_->CloseWindow(std::move(window), worked.event());
          for (size_t b = 0; b < size; ++b) {
            want[static_cast<size_t>(c)]
                .span()[static_cast<size_t>(range.begin.count()) + b] ^=
                std::byte{0x5A};
          }
          break;
        }
        case 1: {
          loaded.emplace_back(kLarge);
          expected.emplace_back(kLarge);
          std::ranges::copy(want[static_cast<size_t>(c)].span(),
                            expected.back().data());
          loads.emplace_back(
              store_->Load(
                  chunk, kParam, {Bytes(0), kLarge}, loaded.back().data(),
                  Event(),
                  random() % 2 == 0 ? RunCause::kDemand : RunCause::kPrefetch),
              loaded.size() - 1);
          break;
        }
        case 2: {
          const Tier to = kAllTiers[random() % 3];
          if (random() % 4 != 0) break;
          const Result<Event> moved =
              store_->Move(chunk, kParam, to, RunCause::kRoom);
          if (moved.ok()) {
            EXPECT_THAT(moved->Wait(), IsOk());
          }
          break;
        }
      }
    }
    for (const auto& [load, which] : loads) {
      ASSERT_THAT(load.Wait(), IsOk());
      EXPECT_TRUE(SameBytes(loaded[which].span(), expected[which].span()));
    }
    for (int32_t c = 0; c < kShards; ++c) {
      ExpectShard(ChunkId(c), want[static_cast<size_t>(c)].span());
    }
    EXPECT_THAT(store_->Close(), IsOk());
    Stop();
  }
}

}  // namespace
}  // namespace castor
