// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Sizes, alignments, refusals, and memory that comes back.

#include "tests/support/contracts/pinned_arena_contract.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/memory/pinned_arena.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
TEST_P(PinnedArenaContract, RefusesBudgetsAndSizesThatAreNone) {
  for (const Bytes budget : {Bytes(0), Bytes(-4096), Bytes(5000)}) {
    PinnedArenaOptions options;
    options.budget = budget;
    EXPECT_THAT(GetParam()(options),
                StatusIs(ErrorCode::kInvalidArgument, Says("4096")));
  }
  const auto arena = Make(KiB(64));
  for (const Bytes size : {Bytes(0), Bytes(-1)}) {
    EXPECT_THAT(arena->Allocate(size), StatusIs(ErrorCode::kInvalidArgument));
  }
  for (const Bytes alignment : {Bytes(0), Bytes(-8), Bytes(3), Bytes(4097)}) {
    EXPECT_THAT(arena->Allocate(Bytes(1), alignment),
                StatusIs(ErrorCode::kInvalidArgument));
  }
  EXPECT_EQ(arena->stats().allocated, 0);
}

TEST_P(PinnedArenaContract, SaysWhatTheMachineLacks) {
  PinnedArenaOptions options;
  options.budget = GiB(1 << 20);
  EXPECT_THAT(GetParam()(options), StatusIs(ErrorCode::kUnavailable));
}

TEST_P(PinnedArenaContract, ServesEverySizeFromOneByteToTheWhole) {
  const Bytes budget = MiB(4) + KiB(4);
  const auto arena = Make(budget);
  std::vector<Bytes> sizes = {budget, budget - Bytes(1), budget - KiB(4)};
  for (int64_t size = 1; size < budget.count(); size = size * 5 / 4 + 1) {
    sizes.emplace_back(size);
  }
  for (const Bytes size : sizes) {
    const PinnedBuffer buffer = Take(*arena, size);
    ASSERT_NE(buffer.data(), nullptr) << size;
    EXPECT_EQ(buffer.size(), size);
    EXPECT_GE(buffer.capacity(), size);
    EXPECT_TRUE(IsInSlab(buffer)) << size;
    EXPECT_TRUE(IsAligned(buffer.data(), kPinnedPage)) << size;
    Fill(buffer, 0x5a);
  }
  ExpectAllFree(*arena);
}

TEST_P(PinnedArenaContract, LargeBuffersTakeNoMoreThanTheirPages) {
  const auto arena = Make(MiB(8));
  for (const Bytes size : {KiB(16), KiB(20), KiB(36), KiB(100), MiB(1),
                           MiB(1) + Bytes(1), MiB(5) + KiB(4)}) {
    const PinnedBuffer buffer = Take(*arena, size);
    EXPECT_EQ(buffer.capacity(), RoundUp(size, kPinnedPage));
    EXPECT_EQ(arena->stats().in_use, RoundUp(size, kPinnedPage)) << size;
  }
}

TEST_P(PinnedArenaContract, ObeysEveryAlignment) {
  const auto arena = Make(MiB(4));
  std::vector<PinnedBuffer> held;
  for (int64_t alignment = 1; alignment <= 1 << 20; alignment *= 2) {
    for (const int64_t size : {1, 100, 5000, 70'000}) {
      PinnedBuffer buffer = Take(*arena, Bytes(size), Bytes(alignment));
      EXPECT_TRUE(IsAligned(buffer.data(), Bytes(alignment)))
          << size << " B at " << alignment;
      EXPECT_TRUE(IsInSlab(buffer));
      // What is aligned to a page may be moved in whole pages.
      if (alignment >= 4096) {
        EXPECT_EQ(buffer.capacity() % kPinnedPage, Bytes(0));
      }
      if (held.size() < 40) held.push_back(std::move(buffer));
    }
  }
  held.clear();
  ExpectAllFree(*arena);
}

TEST_P(PinnedArenaContract, BuffersServeDirectTransfers) {
  TempDir dir;
  const int fd = ::open(dir.File("data").c_str(),
                        O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
  if (fd < 0) GTEST_SKIP() << "the file system refuses O_DIRECT";
  const auto arena = Make(MiB(1));
  const PinnedBuffer out = Take(*arena, Bytes(5000));
  const PinnedBuffer in = Take(*arena, Bytes(5000));
  ASSERT_EQ(out.capacity(), KiB(8));
  Fill(out, 0x17);
  Fill(in, 0);
  EXPECT_EQ(::pwrite(fd, out.data(), 8192, 0), 8192);
  EXPECT_EQ(::pread(fd, in.data(), 8192, 0), 8192);
  EXPECT_TRUE(Holds(in, 0x17));
  ::close(fd);
}

TEST_P(PinnedArenaContract, RefusesWithNumbersWhatDoesNotFit) {
  const auto arena = Make(KiB(64));
  EXPECT_THAT(arena->Allocate(KiB(64) + Bytes(1)),
              StatusIs(ErrorCode::kTierFull));
  EXPECT_THAT(arena->Allocate(Bytes(INT64_MAX)),
              StatusIs(ErrorCode::kTierFull));
  EXPECT_THAT(arena->Allocate(Bytes(1), Bytes(int64_t{1} << 62)),
              StatusIs(ErrorCode::kTierFull));
  PinnedBuffer buffer = Take(*arena, KiB(24));
  EXPECT_THAT(arena->Allocate(KiB(44)),
              StatusIs(ErrorCode::kTierFull,
                       Says("45056", "65536", "24576 bytes are in use by 1",
                            "gap has 40960 bytes")));
  EXPECT_EQ(arena->stats().refused, 4);
  buffer.Free();
  EXPECT_EQ(arena->stats().peak, KiB(24));
  ExpectAllFree(*arena);
}

TEST_P(PinnedArenaContract, EmptyBuffersAndMovedOnesAreHarmless) {
  const auto arena = Make(KiB(64));
  PinnedBuffer none;
  none.Free();
  EXPECT_EQ(none.data(), nullptr);
  PinnedBuffer a = Take(*arena, KiB(4));
  std::byte* data = a.data();
  PinnedBuffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  b = Take(*arena, KiB(8));  // frees what it had
  EXPECT_EQ(arena->stats().buffers, 1);
  PinnedBuffer& same = b;
  b = std::move(same);
  EXPECT_EQ(b.size(), KiB(8));
  b.Free();
  b.Free();
  ExpectAllFree(*arena);
}

TEST_P(PinnedArenaContract, FreedMemoryIsUsableWhateverTheOrder) {
  const Bytes budget = MiB(1);
  const auto arena = Make(budget);
  const uint64_t seed = TestSeed(310);
  std::mt19937_64 random(seed);
  for (const int64_t size : {64, 1000, 4096, 12'288, 16'384, 40'960}) {
    for (int round = 0; round < 3; ++round) {
      std::vector<PinnedBuffer> held;
      while (true) {
        auto buffer = arena->Allocate(Bytes(size), Bytes(64));
        if (!buffer.ok()) break;
        held.push_back(std::move(buffer).value());
      }
      // What is left over is the rounding of small sizes.
      const int64_t filled = static_cast<int64_t>(held.size()) * size;
      EXPECT_GE(filled, budget.count() * 3 / 4) << size << " B";
      if (round == 1) std::reverse(held.begin(), held.end());
      if (round == 2) std::shuffle(held.begin(), held.end(), random);
      for (PinnedBuffer& buffer : held) buffer.Free();
      ExpectAllFree(*arena);
    }
  }
}

// Every second one is freed: nothing larger than one fits, then all of it does.
TEST_P(PinnedArenaContract, TellsFragmentationAndOvercomesIt) {
  const auto arena = Make(KiB(512));
  std::vector<PinnedBuffer> held;
  for (int i = 0; i < 16; ++i) held.push_back(Take(*arena, KiB(32)));
  for (size_t i = 0; i < held.size(); i += 2) held[i].Free();
  EXPECT_EQ(arena->stats().in_use, KiB(256));
  EXPECT_EQ(arena->stats().largest_gap, KiB(32));
  EXPECT_THAT(arena->Allocate(KiB(36)), StatusIs(ErrorCode::kTierFull));
  for (size_t i = 0; i < held.size(); i += 2) held[i] = Take(*arena, KiB(32));
  EXPECT_EQ(arena->stats().largest_gap, Bytes(0));
  held.clear();
  ExpectAllFree(*arena);
}

TEST_P(PinnedArenaContract, ArenasComeAndGoAndGiveTheirSlabBack) {
  for (int i = 0; i < 40; ++i) {
    const auto a = Make(KiB(64));
    ASSERT_NE(a, nullptr);
    const auto b = Make(KiB(128));
    ASSERT_NE(b, nullptr);
    const PinnedBuffer x = Take(*a, KiB(20));
    const PinnedBuffer y = Take(*b, Bytes(7), Bytes(8));
    EXPECT_EQ(a->stats().buffers, 1);
    EXPECT_EQ(b->stats().buffers, 1);
    EXPECT_EQ(a->stats().live, KiB(20));
    EXPECT_EQ(system_.maps, 2);
  }
  EXPECT_EQ(system_.maps, 0);
}

TEST_P(PinnedArenaContract, BuffersMustNotOutliveTheArena) {
  EXPECT_DEATH(
      {
        auto arena = Make(KiB(64));
        const PinnedBuffer buffer = Take(*arena, KiB(4));
        arena.reset();
      },
      "buffers_");
}

// Random lists of operations: against a model, on threads, and without end.

// Random lists of operations against a list of who has which bytes.
TEST_P(PinnedArenaContract, AgreesWithANaiveModel) {
  const uint64_t seed = TestSeed(311);
  for (uint64_t run = 0; run < 5; ++run) {
    std::mt19937_64 random(seed + run);
    const Bytes budget = KiB(4) * static_cast<int64_t>(1 + random() % 600);
    const auto arena = Make(budget);
    struct Held {
      PinnedBuffer buffer;
      int value;
    };
    std::map<const std::byte*, Held> model;  // by address
    Bytes requested, capacity;
    int64_t allocated = 0, refused = 0;
    for (int i = 0; i < TestRounds(1500); ++i) {
      if (model.empty() || random() % 5 < 3) {
        const auto bits = static_cast<int>(random() % 20);
        const Bytes size(
            1 + static_cast<int64_t>(random() % (uint64_t{2} << bits)));
        const Bytes alignment(int64_t{1} << random() % 14);
        const Bytes gap = arena->stats().largest_gap;
        auto buffer = arena->Allocate(size, alignment);
        if (!buffer.ok()) {
          ++refused;
          ASSERT_THAT(buffer, StatusIs(ErrorCode::kTierFull));
          // Never while a gap holds it, whole pages and alignment included.
          ASSERT_LT(gap, RoundUp(size, kPinnedPage) +
                             std::max(alignment, kPinnedPage))
              << "seed " << seed << ", run " << run << ", step " << i;
          continue;
        }
        ++allocated;
        ASSERT_TRUE(IsInSlab(*buffer));
        ASSERT_TRUE(IsAligned(buffer->data(), alignment));
        ASSERT_GE(buffer->capacity(), size);
        // It ends before the next one begins, and begins after the last ended.
        const auto next = model.lower_bound(buffer->data());
        if (next != model.end()) {
          ASSERT_LE(buffer->data() + buffer->capacity().count(), next->first);
        }
        if (next != model.begin()) {
          const auto& before = *std::prev(next);
          ASSERT_LE(before.first + before.second.buffer.capacity().count(),
                    buffer->data());
        }
        const auto value = static_cast<int>(random() % 256);
        Fill(*buffer, value);
        requested += size;
        capacity += buffer->capacity();
        const std::byte* at = buffer->data();
        model[at] = {std::move(buffer).value(), value};
      } else {
        auto victim = model.begin();
        std::advance(victim, static_cast<int64_t>(random() % model.size()));
        ASSERT_TRUE(Holds(victim->second.buffer, victim->second.value))
            << "seed " << seed << ", run " << run << ", step " << i;
        requested -= victim->second.buffer.size();
        capacity -= victim->second.buffer.capacity();
        model.erase(victim);
      }
      const PinnedArenaStats stats = arena->stats();
      ASSERT_LE(stats.in_use, budget);
      ASSERT_LE(capacity, stats.in_use);
      ASSERT_EQ(stats.live, capacity);
      ASSERT_LE(stats.live, stats.active);
      ASSERT_EQ(stats.requested, requested);
      ASSERT_EQ(stats.buffers, static_cast<int64_t>(model.size()));
      ASSERT_EQ(stats.allocated, allocated);
      ASSERT_EQ(stats.refused, refused);
      ASSERT_EQ(stats.retained, Bytes(0));
    }
    EXPECT_GT(allocated, TestRounds(300));
    model.clear();
    ExpectAllFree(*arena);
  }
}

TEST_P(PinnedArenaContract, ThreadsShareIt) {
  const uint64_t seed = TestSeed(312);
  const auto arena = Make(MiB(2));
  std::atomic<int> damaged = 0, misplaced = 0;
  std::atomic<int64_t> served = 0;
  // Buffers pass from thread to thread through these places.
  struct Place {
    std::mutex mutex;
    PinnedBuffer buffer;
    int value = 0;
  };
  std::vector<Place> places(24);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      for (int i = 0; i < TestRounds(2000); ++i) {
        Place& place = places[random() % places.size()];
        const Bytes size(1 + static_cast<int64_t>(
                                 random() % (uint64_t{1} << (random() % 18))));
        const Bytes alignment(int64_t{1} << random() % 13);
        auto made = arena->Allocate(size, alignment);
        const auto value = static_cast<int>(random() % 256);
        if (made.ok()) {
          ++served;
          if (!IsInSlab(*made)) ++misplaced;
          Fill(*made, value);
        }
        std::lock_guard lock(place.mutex);
        if (place.buffer.data() != nullptr && !Holds(place.buffer, place.value))
          ++damaged;
        place.buffer = made.ok() ? std::move(made).value() : PinnedBuffer();
        place.value = value;
        if (i % 100 == 0 && arena->stats().in_use > arena->budget())
          ++misplaced;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(misplaced, 0);
  EXPECT_GT(served, TestRounds(4000));
  places = std::vector<Place>();
  ExpectAllFree(*arena);
}

TEST_P(PinnedArenaContract, TenThousandCyclesGrowNothing) {
  const auto arena = Make(MiB(1));
  std::mt19937_64 random(TestSeed(313));
  const auto cycle = [&] {
    std::vector<PinnedBuffer> held;
    for (int i = 0; i < 12; ++i) {
      auto buffer = arena->Allocate(
          Bytes(1 + static_cast<int64_t>(random() % 120'000)), Bytes(64));
      if (buffer.ok()) held.push_back(std::move(buffer).value());
    }
    std::shuffle(held.begin(), held.end(), random);
  };
  const auto resident_pages = [] {
    int64_t all = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident;
  };
  for (int i = 0; i < 1000; ++i) cycle();
  const Bytes metadata = arena->stats().metadata;
  const int64_t pages = resident_pages();
  for (int i = 0; i < TestRounds(10'000); ++i) cycle();
  // A few more records, where more buffers were alive at once than before.
  EXPECT_LE(arena->stats().metadata, metadata + KiB(4));
  // Noise is less than this; a leak of ten bytes a buffer is not.
  if (!UnderSanitizer()) {
    EXPECT_LE(resident_pages(), pages + 256);
  }
  ExpectAllFree(*arena);
}

}  // namespace castor
