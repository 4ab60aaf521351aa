// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Random instructions to a ShardStore with few slots of every kind, on lanes
// that run in shuffled order, against plain arrays changed in the order of the
// calls. Windows stay open at random, so that loads, stores, moves between
// tiers and other windows wait for their slots; what was fetched ahead is taken
// back at random. What is read is what was written last before, and nothing
// ever stands still.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "offload/shards/host_window.h"
#include "offload/shards/shard_store.h"
#include "offload/shards/staging_ring.h"
#include "offload/shards/window_work.h"
#include "placement/run_event.h"
#include "tests/offload/shards/shard_store_fixture.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/shuffling_executor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

constexpr int kChunks = 6;
constexpr int64_t kSlotsPerTier = 3;  // nine for six shards

void AddOne(std::span<std::byte> bytes) {
  for (std::byte& b : bytes) {
    b = static_cast<std::byte>(std::to_integer<int>(b) + 1);
  }
}

class ShardStoreRandomTest : public ShardStoreFixture {
 protected:
  struct Check {
    std::unique_ptr<AlignedBytes> got;
    std::unique_ptr<AlignedBytes> want;
    LoadTicket ticket = {};
    bool cancelled = false;
    const char* what = "a load";
  };
  struct OpenWindows {
    std::vector<HostWindow> windows;
    Event worked;
  };

  uint64_t Below(uint64_t n) { return random_() % n; }

  void Begin(ShufflingExecutor* executor, uint64_t seed) {
    executor_ = executor;
    random_.seed(seed);
    const int64_t staging = 2 + static_cast<int64_t>(Below(3));
    const int64_t own = 2 + static_cast<int64_t>(Below(3));
    Open(executor, staging + own, kSlotsPerTier, 0, own);
    host_lane_ = std::make_unique<WorkerLane>("host", executor);
    work_lane_ = std::make_unique<WorkerLane>("work", executor);
    model_.clear();
    for (int c = 0; c < kChunks; ++c) {
      AddFilled(static_cast<Tier>(c / 2), seed + static_cast<uint64_t>(c), c);
      model_.push_back(Filled(seed + static_cast<uint64_t>(c)));
    }
    readers_.assign(kChunks, 0);
    writing_.assign(kChunks, false);
  }

  ByteRange RandomRange() {
    const auto a = static_cast<int64_t>(Below(6001));
    const auto b = static_cast<int64_t>(Below(6001));
    if (Below(3) == 0) return kWhole;
    return {Bytes(std::min(a, b)), Bytes(std::max(a, b))};
  }
  std::unique_ptr<AlignedBytes> Copied(size_t c, ByteRange r) {
    auto bytes = std::make_unique<AlignedBytes>(r.size());
    std::ranges::copy(model_[c].part(r.begin, r.size()), bytes->span().begin());
    return bytes;
  }

  void Load(size_t c) {
    if (writing_[c]) return;
    const ByteRange r = RandomRange();
    Check check{std::make_unique<AlignedBytes>(r.size()), Copied(c, r)};
    std::ranges::fill(check.got->span(), std::byte{0});
    const RunCause cause =
        Below(2) == 0 ? RunCause::kDemand : RunCause::kPrefetch;
    store_->Load(ChunkId(static_cast<int32_t>(c)), kParam, r, check.got->data(),
                 Event(), cause, &check.ticket);
    checks_.push_back(std::move(check));
  }

  // One of the last loads, or, while no lane moves, the one just begun.
  void CancelOne() {
    std::optional<ShufflingExecutor::Hold> hold;
    uint64_t among = 4;
    if (Below(2) == 0) {
      hold.emplace(executor_);
      Load(Below(kChunks));
      among = 1;
    }
    if (checks_.empty()) return;
    Check& check = checks_[checks_.size() - 1 -
                           Below(std::min<size_t>(checks_.size(), among))];
    if (check.cancelled || !store_->Cancel(check.ticket)) return;
    check.cancelled = true;
    ++cancelled_;
  }

  void Store(size_t c) {
    if (writing_[c] || readers_[c] > 0) return;
    ByteRange r = RandomRange();
    // Where it is by the time it is its turn.
    const ChunkId chunk(static_cast<int32_t>(c));
    if (store_->home(chunk, kParam) == Tier::kNvme) r = kWhole;
    sources_.push_back(std::make_unique<AlignedBytes>(r.size()));
    FillRandom(sources_.back()->span(), random_());
    std::ranges::copy(sources_.back()->span(),
                      model_[c].part(r.begin, r.size()).begin());
    store_->Store(chunk, kParam, r, sources_.back()->data(), Event(),
                  RunCause::kGradient);
  }

  // One window or two, on different shards, that work uses together.
  void Window() {
    std::vector<WindowRequest> requests;
    const size_t count = 1 + Below(2);
    for (size_t i = 0; i < count; ++i) {
      const size_t c = Below(kChunks);
      const bool reads = Below(2) == 0;
      if (writing_[c] || (!reads && readers_[c] > 0)) continue;
      if (reads) {
        ++readers_[c];
      } else {
        writing_[c] = true;
      }
      WindowRequest request;
      request.chunk = ChunkId(static_cast<int32_t>(c));
      request.range = RandomRange();
      request.mode = reads ? WindowMode::kRead : WindowMode::kReadWrite;
      request.cause = RunCause::kOptimizer;
      requests.push_back(request);
    }
    ASSERT_OK_AND_ASSIGN(std::vector<HostWindow> opened,
                         store_->OpenWindows(requests));
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto c = requests[i].chunk.index();
      const ByteRange r = requests[i].range;
      const auto size = static_cast<size_t>(r.size().count());
      host_lane_->Wait(opened[i].ready);
      if (requests[i].mode == WindowMode::kRead) {
        checks_.push_back(
            {std::make_unique<AlignedBytes>(r.size()), Copied(c, r)});
        host_lane_->Run(
            [from = opened[i].bytes(), to = checks_.back().got->span()] {
              std::memcpy(to.data(), from.get(), to.size());
              return OkStatus();
            });
      } else {
        host_lane_->Run([bytes = opened[i].bytes(), size] {
          AddOne(std::span(bytes.get(), size));
          return OkStatus();
        });
        AddOne(model_[c].part(r.begin, r.size()));
      }
    }
    held_.push_back({std::move(opened), host_lane_->Record()});
    if (Below(2) == 0) CloseOne(held_.size() - 1);
  }

  // Work that is picked by its key, on one shard or two.
  void Work() {
    WindowWork work;
    work.key = static_cast<int64_t>(Below(4));
    struct Part {
      size_t size;
      std::byte* copy;  // null: one is added to each byte
    };
    std::vector<Part> parts;
    const size_t count = 1 + Below(2);
    const size_t first = Below(kChunks);
    for (size_t i = 0; i < count; ++i) {
      const size_t c = (first + i) % kChunks;
      const bool reads = Below(3) == 0;
      if (writing_[c] || (!reads && readers_[c] > 0)) continue;
      WindowRequest& request = work.windows.emplace_back();
      request.chunk = ChunkId(static_cast<int32_t>(c));
      const ByteRange r = request.range = RandomRange();
      request.mode = reads ? WindowMode::kRead : WindowMode::kReadWrite;
      request.cause = RunCause::kOptimizer;
      Part& part = parts.emplace_back();
      part.size = static_cast<size_t>(r.size().count());
      part.copy = nullptr;
      if (reads) {
        checks_.push_back(
            {std::make_unique<AlignedBytes>(r.size()), Copied(c, r)});
        checks_.back().what = "work";
        part.copy = checks_.back().got->data();
      } else {
        AddOne(model_[c].part(r.begin, r.size()));
      }
    }
    if (parts.empty()) return;
    work.run = [parts, lane = work_lane_.get(), mutex = &work_mutex_](
                   std::span<const WorkBytes> at, EventSource used) {
      std::vector<WorkBytes> places(at.begin(), at.end());
      std::lock_guard lock(*mutex);
      lane->Run([parts, places, used] {
        for (size_t i = 0; i < parts.size(); ++i) {
          if (parts[i].copy != nullptr) {
            std::memcpy(parts[i].copy, places[i].data, parts[i].size);
          } else {
            AddOne(std::span(places[i].data, parts[i].size));
          }
        }
        used.Complete();
        return OkStatus();
      });
    };
    store_->QueueWork(std::move(work));
    ++works_;
  }

  void CloseOne(size_t which) {
    if (held_.empty()) return;
    OpenWindows open = std::move(held_[which]);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
    for (HostWindow& window : open.windows) {
      const size_t c = window.chunk.index();
      if (window.mode == WindowMode::kRead) {
        --readers_[c];
      } else {
        writing_[c] = false;
      }
      store_->CloseWindow(std::move(window), open.worked);
    }
  }

  void MoveOne(size_t c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const Tier to = static_cast<Tier>(Below(3));
    const bool room = pools_->pool(to).free_slots(0) > 0;
    const bool away = store_->home(chunk, kParam) != to;
    const Result<Event> moved =
        store_->Move(chunk, kParam, to, RunCause::kNone, 0);
    if (moved.ok()) {
      moves_ += away;
      return;
    }
    refused_ += moved.status().code() == ErrorCode::kTierFull;
    // A shard that waits for another tier goes there and nowhere else.
    if (moved.status().code() != ErrorCode::kFailedPrecondition) {
      ASSERT_FALSE(room) << moved.status();
    }
  }

  // Whatever is under way comes to an end, once nothing is held.
  void Settle() {
    while (!held_.empty()) CloseOne(Below(held_.size()));
    ASSERT_EQ(store_->staging().waiting(), 0);
    ASSERT_EQ(store_->staging().here(), store_->staging().slots());
    ASSERT_THAT(host_lane_->Drain(), IsOk());
    ASSERT_THAT(store_->Drain(), IsOk());
    for (const Check& check : checks_) {
      if (check.cancelled) {
        ASSERT_TRUE(std::ranges::all_of(
            check.got->span(), [](std::byte b) { return b == std::byte{0}; }));
      } else {
        ASSERT_TRUE(SameBytes(check.got->span(), check.want->span()))
            << check.what;
      }
    }
    checks_.clear();
    sources_.clear();
    int64_t homes[3] = {};
    for (int c = 0; c < kChunks; ++c) {
      ++homes[TierIndex(store_->home(ChunkId(c), kParam))];
      ExpectHolds(ChunkId(c), model_[static_cast<size_t>(c)].span());
    }
    for (Tier tier : kAllTiers) {
      ASSERT_EQ(pools_->pool(tier).free_slots(0),
                kSlotsPerTier - homes[TierIndex(tier)])
          << TierName(tier);
      ASSERT_EQ(pools_->pool(tier).waiting(0), 0);
    }
    // What was recorded is what was counted.
    for (const RunEvent& event : events_.Take()) {
      recorded_[TierIndex(event.from)][TierIndex(event.to)] +=
          Bytes(event.bytes);
    }
    ASSERT_EQ(recorded_, store_->moved());
  }

  void RunRounds(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (int i = 0; i < 25; ++i) {
        const size_t c = Below(kChunks);
        switch (Below(11)) {
          case 0:
          case 1:
            Load(c);
            break;
          case 2:
            Store(c);
            break;
          case 3:
          case 4:
            Window();
            break;
          case 5:
            if (!held_.empty()) CloseOne(Below(held_.size()));
            break;
          case 6:
          case 7:
            MoveOne(c);
            break;
          case 8:
            CancelOne();
            break;
          case 9:
          case 10:
            Work();
            break;
        }
        if (HasFatalFailure()) return;
        ASSERT_LE(store_->staging().here(), store_->staging().slots());
      }
      Settle();
      if (HasFatalFailure()) return;
    }
    waits_ += store_->staging().waits();
    EXPECT_THAT(store_->Close(), IsOk());
    for (Tier tier : kAllTiers) {
      EXPECT_EQ(pools_->pool(tier).stats().in_use, Bytes(0));
    }
  }

  ShufflingExecutor* executor_ = nullptr;
  std::mt19937_64 random_;
  std::unique_ptr<WorkerLane> host_lane_;
  std::mutex work_mutex_;
  std::unique_ptr<WorkerLane> work_lane_;  // queued on under work_mutex_
  std::vector<AlignedBytes> model_;        // by chunk
  std::vector<int> readers_;               // open windows that read, by chunk
  std::vector<bool> writing_;              // one that writes is open, by chunk
  std::vector<OpenWindows> held_;
  std::vector<Check> checks_;
  std::vector<std::unique_ptr<AlignedBytes>> sources_;
  std::array<std::array<Bytes, 3>, 3> recorded_;
  // How often it happened: by the calls' order alone, but for cancelled_, of
  // which only loads under a hold are sure to count.
  int64_t cancelled_ = 0;
  int64_t moves_ = 0;
  int64_t refused_ = 0;
  int64_t waits_ = 0;
  int64_t works_ = 0;
};

TEST_F(ShardStoreRandomTest, EveryInstructionListReadsWhatWasWrittenLast) {
  const uint64_t seed = TestSeed(21);
  for (uint64_t i = 0; i < 20; ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << seed + i);
    ShufflingExecutor executor(seed + i);
    recorded_ = {};
    Begin(&executor, seed + i);
    RunRounds(12);
    ASSERT_EQ(failures(), 0) << failure();
    host_lane_.reset();
    store_.reset();
    work_lane_.reset();
    if (HasFatalFailure()) return;
  }
  // The lists are worth something only while all of it happens.
  EXPECT_GT(cancelled_, 50);
  EXPECT_GT(moves_, 100);
  EXPECT_GT(refused_, 10);
  EXPECT_GT(waits_, 100);
  EXPECT_GT(works_, 500);
}

}  // namespace
}  // namespace castor
