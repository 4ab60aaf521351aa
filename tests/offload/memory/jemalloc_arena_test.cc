// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The pinned arena on the jemalloc that Castor's executables hold; this test is
// one of them.

#include "offload/memory/jemalloc_arena.h"

#include <jemalloc/jemalloc.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/memory/jemalloc_api.h"
#include "offload/memory/linked_jemalloc.h"
#include "offload/memory/pinned_arena.h"
#include "tests/support/contracts/pinned_arena_contract.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

Result<std::unique_ptr<PinnedArena>> MakeLinked(
    const PinnedArenaOptions& options) {
  return MakeJemallocArena(LinkedJemalloc(), options);
}

INSTANTIATE_TEST_SUITE_P(Jemalloc, PinnedArenaContract,
                         testing::Values(&MakeLinked));

std::unique_ptr<PinnedArena> Make(Bytes budget) {
  auto arena = MakeLinked({.budget = budget});
  EXPECT_THAT(arena, IsOk());
  return arena.ok() ? std::move(arena).value() : nullptr;
}

uint64_t Control(const std::string& name) {
  uint64_t value = 0;
  size_t size = 0;
  // Asks for the size first: it depends on the name.
  char bytes[sizeof(value)] = {};
  for (const size_t tried : {sizeof(bool), sizeof(unsigned), sizeof(value)}) {
    size = tried;
    if (LinkedJemalloc().mallctl(name.c_str(), bytes, &size, nullptr, 0) == 0) {
      std::memcpy(&value, bytes, tried);
      return value;
    }
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(JemallocArenaTest, JemallocCountsWhatItServes) {
  const auto arena = Make(MiB(4));
  EXPECT_THAT(arena->stats().allocator, testing::StartsWith("jemalloc 5."));
  const uint64_t before_both = Control("thread.allocated");
  const auto small = arena->Allocate(Bytes(100), Bytes(8));
  const auto exact = arena->Allocate(MiB(1));
  ASSERT_THAT(small, IsOk());
  ASSERT_THAT(exact, IsOk());
  EXPECT_EQ(Control("thread.allocated"), before_both + (1 << 20) + 112);
  PinnedArenaStats stats = arena->stats();
  // 100 bytes are of the class of 112, and share pages; 1 MiB is a class.
  EXPECT_EQ(stats.live, MiB(1) + Bytes(112));
  EXPECT_EQ(stats.active, stats.in_use);
  EXPECT_GE(stats.active, MiB(1) + KiB(4));
  EXPECT_LE(stats.active, MiB(1) + KiB(64));
  EXPECT_GE(stats.resident, stats.active);
  EXPECT_GT(stats.metadata, Bytes(0));
  // 1 MiB and a page is no class: it gets an extent of its own.
  ASSERT_OK_AND_ASSIGN(const auto odd, arena->Allocate(MiB(1) + KiB(4)));
  EXPECT_EQ(Control("thread.allocated"), before_both + (1 << 20) + 112);
  const Bytes before = stats.live;
  stats = arena->stats();
  EXPECT_EQ(stats.live, before + MiB(1) + KiB(4));
  EXPECT_EQ(stats.active, stats.in_use);
}

TEST(JemallocArenaTest, SmallBuffersShareAnExtent) {
  const auto arena = Make(KiB(64));
  std::vector<PinnedBuffer> held;
  for (int i = 0; i < 512; ++i) {
    ASSERT_OK_AND_ASSIGN(auto buffer, arena->Allocate(Bytes(8), Bytes(8)));
    held.push_back(std::move(buffer));
  }
  EXPECT_EQ(arena->stats().in_use, KiB(4));
}

// A page is all there is, and jemalloc would have five for some classes.
TEST(JemallocArenaTest, TheLastPageServesASmallBuffer) {
  const auto arena = Make(KiB(4));
  for (int64_t size = 1; size <= 4096; size += 97) {
    EXPECT_THAT(arena->Allocate(Bytes(size), Bytes(1)), IsOk()) << size;
  }
  EXPECT_EQ(arena->stats().in_use, Bytes(0));
}

TEST(JemallocArenaTest, JemallocKeepsNothingAndIsNobodysMalloc) {
  EXPECT_EQ(Control("opt.retain"), 0u);
  EXPECT_EQ(Control("opt.tcache"), 0u);
  EXPECT_EQ(Control("opt.narenas"), 1u);
  EXPECT_EQ(Control("opt.background_thread"), 0u);
  EXPECT_EQ(Control("opt.cache_oblivious"), 0u);
  const uint64_t before = Control("thread.allocated");
  const std::vector<int> ordinary(100'000);
  EXPECT_EQ(Control("thread.allocated"), before);
}

TEST(JemallocArenaTest, GivesJemallocNothingThatNoBufferNeeds) {
  static extent_alloc_t* hook = nullptr;
  JemallocApi api = LinkedJemalloc();
  // Calls the first of the arena's hooks when they are set.
  api.mallctl = [](const char* name, void* old_value, size_t* old_size,
                   void* new_value, size_t new_size) {
    if (std::string_view(name).find("extent_hooks") != std::string_view::npos) {
      auto* hooks = *static_cast<extent_hooks_t**>(new_value);
      hook = hooks->alloc;
      bool zero = false, commit = false;
      // Nobody asked for a buffer.
      EXPECT_EQ(hook(hooks, nullptr, 4096, 4096, &zero, &commit, 0), nullptr);
    }
    return LinkedJemalloc().mallctl(name, old_value, old_size, new_value,
                                    new_size);
  };
  ASSERT_OK_AND_ASSIGN(const auto arena,
                       MakeJemallocArena(api, {.budget = KiB(64)}));
  EXPECT_NE(hook, nullptr);
  EXPECT_THAT(arena->Allocate(KiB(64)), IsOk());
}

TEST(JemallocArenaTest, SaysWhatJemallocRefuses) {
  JemallocApi api = LinkedJemalloc();
  api.mallctl = [](const char*, void*, size_t*, void*, size_t) { return 11; };
  EXPECT_THAT(MakeJemallocArena(api, {.budget = KiB(64)}),
              StatusIs(ErrorCode::kUnavailable, Says("refuses arenas.create")));
}

}  // namespace
}  // namespace castor
