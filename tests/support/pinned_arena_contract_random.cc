// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Random lists of operations: against a model, on threads, and without end.

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
#include "gtest/gtest.h"
#include "offload/pinned_arena.h"
#include "tests/support/pinned_arena_contract.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {

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
