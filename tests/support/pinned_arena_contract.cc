// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Sizes, alignments, refusals, and memory that comes back.

#include "tests/support/pinned_arena_contract.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/pinned_arena.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
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

}  // namespace castor
