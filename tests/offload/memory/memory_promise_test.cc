// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/memory_promise.h"

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/host/slab_system.h"
#include "offload/memory/slab.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using internal::AvailableMemory;
using internal::SlabSystem;

// Has as much as it is told, less what was locked. Locks wait for `go`.
class ScarceSystem : public SlabSystem {
 public:
  explicit ScarceSystem(Bytes all) : all_(all) {}

  std::optional<AvailableMemory> Available() const override {
    return AvailableMemory{all_ - Bytes(touched_.load()), "a cgroup"};
  }
  std::string Lock(std::byte*, Bytes size) const override {
    std::call_once(begun_, [this] { locking.set_value(); });
    go.wait();
    touched_ += size.count();
    return "";
  }
  void Unlock(std::byte*, Bytes) const override {}

  mutable std::promise<void> locking;  // the first does
  mutable std::latch go{1};

 private:
  const Bytes all_;
  mutable std::once_flag begun_;
  mutable std::atomic<int64_t> touched_ = 0;
};

Result<Slab> SlabOf(Bytes size, const ScarceSystem& system) {
  HostSlabOptions options;
  options.system = &system;
  return MakeHostSlab(size, options);
}

TEST(MemoryPromiseTest, WhatOthersAreAboutToTouchIsNotAvailable) {
  const ScarceSystem system(MiB(3));
  std::future<Result<Slab>> first =
      std::async(std::launch::async, [&] { return SlabOf(MiB(2), system); });
  system.locking.get_future().wait();
  std::future<Result<Slab>> second =
      std::async(std::launch::async, [&] { return SlabOf(MiB(2), system); });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)),
            std::future_status::timeout)
      << "the first decides";
  system.go.count_down();
  EXPECT_THAT(first.get(), IsOk());
  EXPECT_THAT(second.get(), StatusIs(ErrorCode::kUnavailable));
}

TEST(MemoryPromiseTest, NobodyWaitsWhereAllFits) {
  const ScarceSystem system(MiB(4));
  std::future<Result<Slab>> first =
      std::async(std::launch::async, [&] { return SlabOf(MiB(2), system); });
  system.locking.get_future().wait();
  {
    internal::MemoryPromise beside;
    std::optional<AvailableMemory> found;
    EXPECT_TRUE(beside.Make(MiB(2), Bytes(0), system, &found));
    EXPECT_EQ(found->bytes, MiB(4));
  }
  system.go.count_down();
  EXPECT_THAT(first.get(), IsOk());
  EXPECT_THAT(SlabOf(MiB(2), system), IsOk()) << "touched memory counts once";
}

// Ranks that are threads, all at once, of which as many get memory as there is
// for.
TEST(MemoryPromiseTest, AsManyAreServedAsFit) {
  const ScarceSystem system(MiB(10));
  system.go.count_down();
  std::atomic<int> served = 0;
  std::vector<std::optional<Slab>> slabs(8);
  {
    std::vector<std::jthread> ranks;
    for (auto& slab : slabs) {
      ranks.emplace_back([&] {
        Result<Slab> made = SlabOf(MiB(2), system);
        if (!made.ok()) return;
        slab = *std::move(made);
        ++served;
      });
    }
  }
  EXPECT_EQ(served, 5);
}

}  // namespace
}  // namespace castor
