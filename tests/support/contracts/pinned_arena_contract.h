// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_CONTRACTS_PINNED_ARENA_CONTRACT_H_
#define CASTOR_TESTS_SUPPORT_CONTRACTS_PINNED_ARENA_CONTRACT_H_

// What every PinnedArena must do. A test of an implementation links this and
// instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Own, PinnedArenaContract,
//                            testing::Values(&MakePinnedArena));

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/host/slab_system.h"
#include "offload/memory/pinned_arena.h"
#include "offload/memory/slab.h"
#include "tests/support/status_matchers.h"

namespace castor {

using PinnedArenaMaker =
    Result<std::unique_ptr<PinnedArena>> (*)(const PinnedArenaOptions&);

// The operating system, telling where the slab is.
class WatchedSystem : public internal::SlabSystem {
 public:
  std::byte* Map(Bytes size, std::string* why) const override {
    begin = SlabSystem::Map(size, why);
    this->size = size;
    ++maps;
    return begin;
  }
  void Unmap(std::byte* data, Bytes size) const override {
    --maps;
    SlabSystem::Unmap(data, size);
  }

  mutable std::byte* begin = nullptr;
  mutable Bytes size;
  mutable int maps = 0;
};

class PinnedArenaContract : public testing::TestWithParam<PinnedArenaMaker> {
 protected:
  std::unique_ptr<PinnedArena> Make(Bytes budget) {
    PinnedArenaOptions options;
    options.budget = budget;
    options.log = &silent_;
    options.make_slab = [this](Bytes size, HostSlabOptions slab,
                               HostSlabFacts* facts) {
      slab.system = &system_;
      return MakeHostSlab(size, slab, facts);
    };
    auto arena = GetParam()(options);
    EXPECT_THAT(arena, IsOk());
    return arena.ok() ? std::move(arena).value() : nullptr;
  }
  PinnedBuffer Take(PinnedArena& arena, Bytes size,
                    Bytes alignment = kPinnedPage) {
    auto buffer = arena.Allocate(size, alignment);
    EXPECT_THAT(buffer, IsOk());
    return buffer.ok() ? std::move(buffer).value() : PinnedBuffer();
  }
  static bool IsAligned(const void* data, Bytes alignment) {
    return reinterpret_cast<uintptr_t>(data) %
               static_cast<uintptr_t>(alignment.count()) ==
           0;
  }
  bool IsInSlab(const PinnedBuffer& buffer) const {
    return buffer.data() >= system_.begin &&
           buffer.data() + buffer.capacity().count() <=
               system_.begin + system_.size.count();
  }
  static void Fill(const PinnedBuffer& buffer, int value) {
    std::memset(buffer.data(), value,
                static_cast<size_t>(buffer.capacity().count()));
  }
  static bool Holds(const PinnedBuffer& buffer, int value) {
    const std::byte* data = buffer.data();
    return std::all_of(data, data + buffer.capacity().count(),
                       [value](std::byte b) { return b == std::byte(value); });
  }
  // A sanitizer keeps account of freed memory, which grows.
  static bool UnderSanitizer() {
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#endif
#endif
    return false;
  }
  // All of the slab is one gap, and can be had as one buffer.
  void ExpectAllFree(PinnedArena& arena) {
    const PinnedArenaStats stats = arena.stats();
    EXPECT_EQ(stats.buffers, 0);
    EXPECT_EQ(stats.requested, Bytes(0));
    EXPECT_EQ(stats.in_use, Bytes(0));
    EXPECT_EQ(stats.live, Bytes(0));
    EXPECT_EQ(stats.active, Bytes(0));
    EXPECT_EQ(stats.retained, Bytes(0));
    EXPECT_EQ(stats.largest_gap, arena.budget());
    EXPECT_THAT(arena.Allocate(arena.budget()), IsOk());
  }

  WatchedSystem system_;
  Log silent_{[](LogLevel, std::string_view) {}};
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_CONTRACTS_PINNED_ARENA_CONTRACT_H_
