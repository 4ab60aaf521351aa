// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/range_allocator.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

TEST(RangeAllocatorTest, AnEmptyRangeHasNothing) {
  RangeAllocator range(Bytes(0), Bytes(0), Bytes(64));
  EXPECT_EQ(range.Take(Bytes(1), Bytes(1)), std::nullopt);
  EXPECT_EQ(range.largest_gap(), Bytes(0));
  EXPECT_EQ(range.gaps(), 0);
}

// The gap that is just large enough is in the list of its own bin, behind
// others that are not.
TEST(RangeAllocatorTest, FindsTheOneGapThatHoldsThePiece) {
  RangeAllocator range(Bytes(0), Bytes(100'000), Bytes(1));
  std::vector<Bytes> held;
  // Gaps of 1024 to 1055, of one bin, with pieces between them.
  for (int64_t i = 0; i < 32; ++i) {
    held.push_back(*range.Take(Bytes(1024 + i), Bytes(1)));
    ASSERT_NE(range.Take(Bytes(1), Bytes(1)), std::nullopt);
  }
  while (range.Take(Bytes(1), Bytes(1)).has_value()) {
  }
  for (size_t i = 32; i-- > 0;) {
    range.Give(held[i], Bytes(1024 + static_cast<int64_t>(i)));
  }
  EXPECT_EQ(range.gaps(), 32);
  EXPECT_EQ(range.Take(Bytes(1055), Bytes(1)), held[31]);
  EXPECT_EQ(range.Take(Bytes(1055), Bytes(1)), std::nullopt);
  EXPECT_EQ(range.Take(Bytes(1054), Bytes(1)), held[30]);
}

TEST(RangeAllocatorTest, WhatIsGivenBackTwiceIsADefect) {
  RangeAllocator range(Bytes(0), Bytes(4096), Bytes(64));
  const Bytes a = *range.Take(Bytes(64), Bytes(1));
  const Bytes b = *range.Take(Bytes(64), Bytes(1));
  ASSERT_NE(b, a);
  range.Give(a, Bytes(64));
  EXPECT_DEATH(range.Give(a, Bytes(64)), "begins_");
}

// Random lists against one byte for every granule.
TEST(RangeAllocatorTest, AgreesWithAByteForEveryGranule) {
  const uint64_t seed = TestSeed(300);
  for (int run = 0; run < TestRounds(40); ++run) {
    std::mt19937_64 random(seed + run);
    const auto granules = static_cast<int64_t>(1 + random() % 3000);
    const auto first = static_cast<int64_t>(random() % 500);
    const Bytes granule(int64_t{1} << random() % 13);
    RangeAllocator range(granule * first, granule * granules, granule);
    std::vector<bool> taken(static_cast<size_t>(granules));
    std::vector<std::pair<int64_t, int64_t>> held;  // first granule, how many
    const auto is_free = [&](int64_t from, int64_t count) {
      for (int64_t i = from; i < from + count; ++i) {
        if (taken[static_cast<size_t>(i - first)]) return false;
      }
      return true;
    };
    const auto mark = [&](int64_t from, int64_t count, bool value) {
      std::fill_n(taken.begin() + (from - first), count, value);
    };
    int64_t used = 0, peak = 0;
    for (int step = 0; step < 400; ++step) {
      if (held.empty() || random() % 2 == 0) {
        const auto wanted =
            static_cast<int64_t>(1 + random() % (uint64_t{1} << random() % 11));
        const int64_t align = int64_t{1} << random() % 6;
        // In bytes, not all of them whole granules.
        const Bytes size =
            granule * wanted -
            Bytes(static_cast<int64_t>(random() %
                                       static_cast<uint64_t>(granule.count())));
        const std::optional<Bytes> got = range.Take(size, granule * align);
        bool possible = false;
        for (int64_t at = (first + align - 1) / align * align;
             at + wanted <= first + granules && !possible; at += align) {
          possible = is_free(at, wanted);
        }
        ASSERT_EQ(got.has_value(), possible)
            << "seed " << seed << ", run " << run << ", step " << step;
        if (!possible) continue;
        const int64_t at = *got / granule;
        ASSERT_EQ(*got % (granule * align), Bytes(0));
        ASSERT_GE(at, first);
        ASSERT_LE(at + wanted, first + granules);
        ASSERT_TRUE(is_free(at, wanted)) << "seed " << seed << ", run " << run;
        mark(at, wanted, true);
        held.emplace_back(at, wanted);
        used += wanted;
      } else {
        auto& victim = held[random() % held.size()];
        // A part of it at either end, or all.
        const auto part = static_cast<int64_t>(
            1 + random() % static_cast<uint64_t>(victim.second));
        const bool front = random() % 2 == 0;
        const int64_t from =
            front ? victim.first : victim.first + victim.second - part;
        range.Give(granule * from, granule * part);
        mark(from, part, false);
        used -= part;
        victim.second -= part;
        if (front) victim.first += part;
        if (victim.second == 0) {
          victim = held.back();
          held.pop_back();
        }
      }
      peak = std::max(peak, used);
      int64_t gaps = 0, largest = 0, length = 0;
      for (const bool t : taken) {
        length = t ? 0 : length + 1;
        if (length == 1) ++gaps;
        largest = std::max(largest, length);
      }
      ASSERT_EQ(range.gaps(), gaps) << "seed " << seed << ", run " << run;
      ASSERT_EQ(range.largest_gap(), granule * largest);
      ASSERT_EQ(range.in_use(), granule * used);
      ASSERT_EQ(range.peak(), granule * peak);
    }
  }
}

// Terabytes cost no more than kilobytes: nothing is kept per granule.
TEST(RangeAllocatorTest, BookkeepingGrowsWithGapsOnly) {
  const Bytes large = GiB(4096);
  RangeAllocator range(KiB(4), large, Bytes(64));
  EXPECT_LT(range.bookkeeping(), KiB(16));
  const Bytes a = *range.Take(large - GiB(1), Bytes(4096));
  EXPECT_EQ(range.largest_gap(), GiB(1));
  range.Give(a, large - GiB(1));
  EXPECT_EQ(range.largest_gap(), large);
  std::vector<Bytes> held;
  for (int i = 0; i < 2000; ++i) {
    held.push_back(*range.Take(KiB(64), Bytes(64)));
  }
  for (size_t i = 0; i < held.size(); i += 2) range.Give(held[i], KiB(64));
  EXPECT_EQ(range.gaps(), 1001);
  const Bytes grown = range.bookkeeping();
  for (size_t i = 1; i < held.size(); i += 2) range.Give(held[i], KiB(64));
  EXPECT_EQ(range.gaps(), 1);
  for (int round = 0; round < 3; ++round) {
    for (Bytes& at : held) at = *range.Take(KiB(64), Bytes(64));
    for (const Bytes at : held) range.Give(at, KiB(64));
  }
  EXPECT_EQ(range.bookkeeping(), grown);
}

}  // namespace
}  // namespace castor
