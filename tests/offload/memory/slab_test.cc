// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/slab.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/host/available_memory.h"
#include "offload/host/slab_system.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using internal::AvailableMemory;
using internal::SlabSystem;
using testing::ElementsAre;
using testing::IsEmpty;

// The real system, refusing what it is told to, and keeping account of what is
// mapped.
class FussySystem : public SlabSystem {
 public:
  std::byte* Map(Bytes size, std::string* why) const override {
    calls.push_back("map");
    if (!refuse_map.empty()) {
      *why = refuse_map;
      return nullptr;
    }
    std::byte* data = SlabSystem::Map(size, why);
    mapped[data] = size;
    return data;
  }
  void Unmap(std::byte* data, Bytes size) const override {
    EXPECT_EQ(mapped.at(data), size);
    mapped.erase(data);
    SlabSystem::Unmap(data, size);
  }
  std::string AdviseHugePages(std::byte* data, Bytes size) const override {
    calls.push_back("huge pages");
    EXPECT_EQ(mapped.at(data), size);
    return refuse_huge_pages;
  }
  std::string BindToCallersNode(std::byte* data, Bytes size) const override {
    calls.push_back("bind");
    EXPECT_EQ(mapped.at(data), size);
    return refuse_bind;
  }
  std::string BindToNode(std::byte* data, Bytes size, int node) const override {
    calls.push_back("bind to " + std::to_string(node));
    EXPECT_EQ(mapped.at(data), size);
    return refuse_bind;
  }
  std::string Lock(std::byte* data, Bytes size) const override {
    calls.push_back("lock");
    EXPECT_EQ(mapped.at(data), size);
    return refuse_lock;
  }
  void Unlock(std::byte* data, Bytes size) const override {
    calls.push_back("unlock");
    EXPECT_EQ(mapped.at(data), size);
  }
  std::string Drop(std::byte* data, Bytes size) const override {
    calls.push_back("drop");
    return SlabSystem::Drop(data, size);
  }
  std::optional<Bytes> LockLimit() const override { return KiB(8192); }
  std::optional<AvailableMemory> Available() const override {
    return available;
  }

  std::string refuse_map;
  std::string refuse_huge_pages;
  std::string refuse_bind;
  std::string refuse_lock;
  std::optional<AvailableMemory> available;
  mutable std::map<std::byte*, Bytes> mapped;
  mutable std::vector<std::string> calls;
};

class SlabTest : public testing::Test {
 protected:
  FussySystem system_;
  std::vector<std::string> said_;
  Log log_{
      [this](LogLevel, std::string_view line) { said_.emplace_back(line); }};
  HostSlabOptions options_{.log = &log_, .system = &system_};
};

bool AllZero(const Slab& slab) {
  return std::all_of(slab.data(), slab.data() + slab.size().count(),
                     [](std::byte b) { return b == std::byte{0}; });
}

TEST_F(SlabTest, OwnsItsMemoryAndMoves) {
  int freed = 0;
  std::byte memory[8];
  {
    Slab a(Tier::kHost, memory, Bytes(8), [&](std::byte* data, Bytes size) {
      EXPECT_EQ(data, memory);
      EXPECT_EQ(size, Bytes(8));
      ++freed;
    });
    Slab b = std::move(a);
    EXPECT_EQ(a.data(), nullptr);  // NOLINT: says what a moved-from slab is
    EXPECT_EQ(a.size(), Bytes(0));
    EXPECT_EQ(b.data(), memory);
    EXPECT_EQ(b.tier(), Tier::kHost);
    Slab c;
    c = std::move(b);
    EXPECT_EQ(freed, 0);
    c = Slab();
    EXPECT_EQ(freed, 1);
    EXPECT_EQ(c.data(), nullptr);
  }
  EXPECT_EQ(freed, 1);
}

TEST_F(SlabTest, MapsTheExactSizeRoundedUpToAPage) {
  {
    ASSERT_OK_AND_ASSIGN(const Slab slab,
                         MakeHostSlab(KiB(8) + Bytes(1), options_));
    EXPECT_EQ(slab.tier(), Tier::kHost);
    EXPECT_EQ(slab.size(), KiB(8) + Bytes(1));
    EXPECT_EQ(system_.mapped.at(slab.data()), KiB(12));
    EXPECT_TRUE(AllZero(slab));
  }
  EXPECT_THAT(system_.mapped, IsEmpty());
}

TEST_F(SlabTest, HostMemoryIsPlacedBeforeItIsLocked) {
  HostSlabFacts facts;
  ASSERT_OK_AND_ASSIGN(const Slab slab, MakeHostSlab(MiB(2), options_, &facts));
  EXPECT_THAT(system_.calls, ElementsAre("map", "huge pages", "bind", "lock"));
  EXPECT_TRUE(facts.locked);
  EXPECT_TRUE(facts.bound);
  EXPECT_TRUE(facts.huge_pages);
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(SlabTest, HugePagesAreForSlabsThatFillOne) {
  HostSlabFacts facts;
  ASSERT_THAT(MakeHostSlab(MiB(2) - Bytes(1), options_, &facts), IsOk());
  EXPECT_FALSE(facts.huge_pages);
  system_.refuse_huge_pages = "switched off";
  ASSERT_THAT(MakeHostSlab(MiB(4), options_, &facts), IsOk());
  EXPECT_FALSE(facts.huge_pages);
}

TEST_F(SlabTest, RefusedLockingIsSaidOnceWithTheRemedy) {
  system_.refuse_lock = "Cannot allocate memory";
  HostSlabFacts facts;
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_OK_AND_ASSIGN(const Slab slab,
                         MakeHostSlab(MiB(16), options_, &facts));
    EXPECT_FALSE(facts.locked);
    EXPECT_TRUE(facts.bound);
    EXPECT_TRUE(AllZero(slab));
  }
  EXPECT_THAT(said_,
              ElementsAre(Says("16 MiB", "unlocked: Cannot allocate memory",
                               "limit is 8192 KiB", "16384 KiB", "ulimit -l")));
}

TEST_F(SlabTest, RefusedBindingIsSaidOnceWithTheRemedy) {
  system_.refuse_bind = "Operation not permitted";
  HostSlabFacts facts;
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_THAT(MakeHostSlab(KiB(4), options_, &facts), IsOk());
    EXPECT_FALSE(facts.bound);
    EXPECT_TRUE(facts.locked);
  }
  EXPECT_THAT(said_, ElementsAre(Says("NUMA", "Operation not permitted",
                                      "CAP_SYS_NICE")));
}

TEST_F(SlabTest, LiesOnTheNodeItIsAskedFor) {
  options_.numa_node = 5;
  ASSERT_THAT(MakeHostSlab(KiB(8), options_), IsOk());
  EXPECT_THAT(system_.calls, ElementsAre("map", "bind to 5", "lock"));
  system_.refuse_bind = "no such node";
  ASSERT_THAT(MakeHostSlab(KiB(8), options_), IsOk());
  EXPECT_THAT(said_, ElementsAre(Says("not bound to NUMA node 5")));
}

TEST_F(SlabTest, IsOnlyTouchedWhereAnotherLocksIt) {
  options_.lock = false;
  HostSlabFacts facts;
  ASSERT_THAT(MakeHostSlab(KiB(8), options_, &facts), IsOk());
  EXPECT_THAT(system_.calls, ElementsAre("map", "bind"));
  EXPECT_FALSE(facts.locked);
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(SlabTest, FallbacksNeedNoLog) {
  system_.refuse_bind = "no";
  system_.refuse_lock = "no";
  options_.log = nullptr;
  HostSlabFacts facts;
  ASSERT_THAT(MakeHostSlab(KiB(4), options_, &facts), IsOk());
  EXPECT_FALSE(facts.bound);
  EXPECT_FALSE(facts.locked);
}

TEST_F(SlabTest, AFailedMappingSaysHowMuchAndWhy) {
  system_.refuse_map = "Cannot allocate memory";
  EXPECT_THAT(MakeHostSlab(MiB(1), options_),
              StatusIs(ErrorCode::kUnavailable,
                       Says("1 MiB of host", "Cannot allocate memory",
                            "lower the host budget")));
  EXPECT_THAT(
      MakeSimulatedDeviceSlab(MiB(1), &system_),
      StatusIs(ErrorCode::kUnavailable, Says("lower the device budget")));
}

TEST_F(SlabTest, MemoryThatIsNotThereIsRefusedBeforeItIsMapped) {
  system_.available = {MiB(3), "MemAvailable in /proc/meminfo"};
  EXPECT_THAT(MakeSimulatedDeviceSlab(MiB(3), &system_), IsOk());
  system_.calls.clear();
  const auto refused = StatusIs(
      ErrorCode::kUnavailable,
      Says("3.01 MiB of", "3 MiB are", "MemAvailable in /proc/meminfo"));
  EXPECT_THAT(MakeSimulatedDeviceSlab(MiB(3) + Bytes(1), &system_), refused);
  EXPECT_THAT(MakeHostSlab(MiB(3) + Bytes(1), options_), refused);
  EXPECT_THAT(system_.calls, IsEmpty());
}

TEST_F(SlabTest, SimulatedDevicesAreNotLocked) {
  ASSERT_OK_AND_ASSIGN(const Slab slab,
                       MakeSimulatedDeviceSlab(MiB(2), &system_));
  EXPECT_EQ(slab.tier(), Tier::kDevice);
  EXPECT_EQ(slab.size(), MiB(2));
  EXPECT_TRUE(AllZero(slab));
  EXPECT_THAT(system_.calls, ElementsAre("map", "huge pages"));
}

TEST_F(SlabTest, NothingIsAskedOfTheSystemForAnEmptySlab) {
  HostSlabFacts facts;
  ASSERT_THAT(MakeHostSlab(Bytes(0), options_, &facts), IsOk());
  EXPECT_FALSE(facts.locked);
  ASSERT_THAT(MakeSimulatedDeviceSlab(Bytes(0), &system_), IsOk());
  EXPECT_THAT(system_.calls, IsEmpty());
}

TEST_F(SlabTest, PagesGoAndComeBack) {
  ASSERT_OK_AND_ASSIGN(const Slab slab, MakeHostSlab(KiB(24), options_));
  SlabPages& pages = *slab.pages();
  EXPECT_TRUE(pages.locked());
  std::memset(slab.data(), 7, static_cast<size_t>(slab.size().count()));
  system_.calls.clear();
  pages.Loosen();
  EXPECT_FALSE(pages.locked());
  // Whole pages only: those of 4 KiB to 12 KiB.
  pages.Drop(slab.data() + 100, KiB(12));
  pages.Drop(slab.data() + KiB(16).count() + 1, KiB(4));  // holds none
  EXPECT_THAT(system_.calls, ElementsAre("unlock", "drop"));
  for (int64_t at = 0; at < slab.size().count(); ++at) {
    const bool gone = at >= KiB(4).count() && at < KiB(12).count();
    ASSERT_EQ(slab.data()[at], std::byte{gone ? uint8_t{0} : uint8_t{7}}) << at;
  }
  pages.Settle();
  EXPECT_TRUE(pages.locked());
  pages.Settle();
  EXPECT_THAT(system_.calls, ElementsAre("unlock", "drop", "lock"));
  // Settled, it is as it was.
  EXPECT_EQ(slab.data()[0], std::byte{7});
  EXPECT_EQ(slab.data()[KiB(8).count()], std::byte{0});
}

TEST_F(SlabTest, LooseMemoryCountsOnWhatOthersGiveBack) {
  system_.available = {MiB(3), "MemAvailable in /proc/meminfo"};
  options_.coming = {.loose = true, .returned = MiB(1)};
  HostSlabFacts facts;
  ASSERT_OK_AND_ASSIGN(const Slab slab, MakeHostSlab(MiB(4), options_, &facts));
  EXPECT_FALSE(facts.locked);
  EXPECT_EQ(system_.calls.back(), "bind");
  EXPECT_THAT(MakeHostSlab(MiB(4) + Bytes(1), options_),
              StatusIs(ErrorCode::kUnavailable));
  slab.pages()->Settle();
  EXPECT_TRUE(slab.pages()->locked());
  ASSERT_OK_AND_ASSIGN(
      const Slab device,
      MakeSimulatedDeviceSlab(MiB(4), &system_, options_.coming));
  EXPECT_FALSE(device.pages()->locked());
}

// On the machine as it is: whatever it refuses, the memory is there.
TEST(RealSlabTest, HostMemoryCanBeUsedToTheLastByte) {
  HostSlabFacts facts;
  ASSERT_OK_AND_ASSIGN(Slab slab, MakeHostSlab(MiB(24) + Bytes(5), {}, &facts));
  EXPECT_TRUE(AllZero(slab));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(slab.data()) % 4096, 0u);
  std::memset(slab.data(), 1, static_cast<size_t>(slab.size().count()));
}

}  // namespace
}  // namespace castor
