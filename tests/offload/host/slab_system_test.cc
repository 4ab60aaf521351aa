// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/host/slab_system.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "tests/offload/host/pretended_machine.h"

namespace castor::internal {
namespace {

// AddressSanitizer and ThreadSanitizer turn mlock into nothing.
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CASTOR_MLOCK_IS_INERT
#endif
#endif
bool MlockIsInert() {
#ifdef CASTOR_MLOCK_IS_INERT
  return true;
#else
  return false;
#endif
}

// How many pages from `data` on are mapped, up to `count`.
int64_t MappedPages(std::byte* data, int64_t count) {
  std::vector<unsigned char> present(1);
  int64_t mapped = 0;
  while (mapped < count &&
         mincore(data + mapped * 4096, 4096, present.data()) == 0) {
    ++mapped;
  }
  return mapped;
}

TEST(SlabSystemTest, MapsZeroedMemoryAndUnmapsIt) {
  const SlabSystem& system = RealSlabSystem();
  std::string why;
  std::byte* data = system.Map(KiB(64), &why);
  ASSERT_NE(data, nullptr) << why;
  for (int i = 0; i < 65536; ++i) ASSERT_EQ(data[i], std::byte{0});
  std::memset(data, 7, 65536);
  system.Unmap(data, KiB(64));
  EXPECT_EQ(MappedPages(data, 16), 0);
}

TEST(SlabSystemTest, LargeMappingsStartOnAHugePageAndAreExact) {
  const SlabSystem& system = RealSlabSystem();
  // Several, since one may be aligned by luck.
  const Bytes size = MiB(3) + KiB(4);
  std::vector<std::byte*> all;
  std::string why;
  for (int i = 0; i < 8; ++i) {
    std::byte* data = system.Map(size, &why);
    ASSERT_NE(data, nullptr) << why;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % (2 << 20), 0u);
    EXPECT_EQ(MappedPages(data, 769), 769);
    all.push_back(data);
  }
  for (std::byte* data : all) system.Unmap(data, size);
  // Nothing that was mapped to align them is left behind.
  for (std::byte* data : all) EXPECT_EQ(MappedPages(data, 1), 0);
}

// On a machine that hwloc is told has two nodes, of which the kernel has one:
// memory for the other one is refused, which memory for both would not be.
TEST(SlabSystemTest, BindsToTheNodeOfTheCallersProcessorOnly) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  if (!CPU_ISSET(0, &mask) || !CPU_ISSET(1, &mask) ||
      access("/sys/devices/system/node/node1", F_OK) == 0) {
    GTEST_SKIP() << "needs processors 0 and 1 and one node";
  }
  // Processors 0 and 2 on the first node, 1 and 3 on the second.
  const PretendedMachine machine("node:2 pu:2(indexes=0,2,1,3)", /*real=*/true);
  const SlabSystem& system = RealSlabSystem();
  std::string why;
  std::byte* data = system.Map(KiB(64), &why);
  ASSERT_NE(data, nullptr) << why;
  for (int processor : {0, 1}) {
    std::thread([&] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(processor, &one);
      ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
      EXPECT_EQ(system.BindToCallersNode(data, KiB(64)).empty(),
                processor == 0);
    }).join();
  }
  system.Unmap(data, KiB(64));
}

TEST(SlabSystemTest, AMappingThatCannotBeSaysWhy) {
  std::string why;
  EXPECT_EQ(RealSlabSystem().Map(GiB(1 << 20), &why), nullptr);
  EXPECT_FALSE(why.empty());
}

TEST(SlabSystemTest, LocksWhatTheLimitAllows) {
  const SlabSystem& system = RealSlabSystem();
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  if (limit.rlim_cur == RLIM_INFINITY) {
    EXPECT_FALSE(system.LockLimit().has_value());
  } else {
    EXPECT_EQ(system.LockLimit(), Bytes(static_cast<int64_t>(limit.rlim_cur)));
  }
  if (MlockIsInert()) GTEST_SKIP() << "the sanitizer takes mlock away";
  if (limit.rlim_cur < 16384) {
    GTEST_SKIP() << "less than 16 KiB may be locked here";
  }
  std::string why;
  std::byte* data = system.Map(KiB(16), &why);
  ASSERT_NE(data, nullptr) << why;
  EXPECT_EQ(system.Lock(data, KiB(16)), "");
  std::vector<unsigned char> present(4);
  ASSERT_EQ(mincore(data, 16384, present.data()), 0);
  for (const unsigned char page : present) EXPECT_TRUE(page & 1);
  system.Unmap(data, KiB(16));
}

TEST(SlabSystemTest, BindingAndAdviceWorkOrSayWhy) {
  const SlabSystem& system = RealSlabSystem();
  std::string why;
  std::byte* data = system.Map(MiB(2), &why);
  ASSERT_NE(data, nullptr) << why;
  // What this machine refuses is its own affair; the memory must stay usable.
  const std::string bound = system.BindToCallersNode(data, MiB(2));
  const std::string advised = system.AdviseHugePages(data, MiB(2));
  RecordProperty("binding", bound.empty() ? "had" : bound);
  RecordProperty("huge_pages", advised.empty() ? "had" : advised);
  std::memset(data, 7, 2 << 20);
  EXPECT_EQ(data[(2 << 20) - 1], std::byte{7});
  system.Unmap(data, MiB(2));
}

TEST(SlabSystemTest, BindsToANodeThatThereIs) {
  const SlabSystem& system = RealSlabSystem();
  std::string why;
  std::byte* data = system.Map(KiB(16), &why);
  ASSERT_NE(data, nullptr) << why;
  const std::string bound = system.BindToNode(data, KiB(16), 0);
  RecordProperty("binding", bound.empty() ? "had" : bound);
  EXPECT_NE(system.BindToNode(data, KiB(16), 4000).find("NUMA node 4000"),
            std::string::npos);
  std::memset(data, 7, 16384);
  system.Unmap(data, KiB(16));
}

TEST(SlabSystemTest, LockingWhatIsNotMappedSaysWhy) {
  if (MlockIsInert()) GTEST_SKIP() << "the sanitizer takes mlock away";
  const SlabSystem& system = RealSlabSystem();
  std::string why;
  std::byte* data = system.Map(KiB(16), &why);
  ASSERT_NE(data, nullptr) << why;
  system.Unmap(data, KiB(16));
  EXPECT_NE(system.Lock(data, KiB(16)), "");
}

}  // namespace
}  // namespace castor::internal
