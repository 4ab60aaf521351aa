// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/internal/cpu_map.h"

#include <sched.h>

#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/offload/internal/pretended_machine.h"

namespace castor::internal {
namespace {

cpu_set_t Mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  return mask;
}

TEST(CpuMapTest, HasNoMoreCoresThanTheProcessMayUseProcessors) {
  const CpuMap cpus;
  const cpu_set_t mask = Mask();
  EXPECT_GE(cpus.node_of_core().size(), 1u);
  EXPECT_LE(cpus.node_of_core().size(), static_cast<size_t>(CPU_COUNT(&mask)));
  EXPECT_GE(cpus.nodes(), 1);
  for (int node : cpus.node_of_core()) {
    EXPECT_GE(node, 0);
    EXPECT_LT(node, cpus.nodes());
  }
}

TEST(CpuMapTest, BindsToProcessorsOfTheProcessOnly) {
  const CpuMap cpus;
  const cpu_set_t before = Mask();
  for (int node = 0; node < cpus.nodes(); ++node) {
    std::thread([&] {
      EXPECT_EQ(cpus.BindCallingThread(node), "");
      const cpu_set_t bound = Mask();
      EXPECT_GE(CPU_COUNT(&bound), 1);
      cpu_set_t both;
      CPU_AND(&both, &before, &bound);
      EXPECT_TRUE(CPU_EQUAL(&both, &bound));
    }).join();
  }
  const cpu_set_t after = Mask();
  EXPECT_TRUE(CPU_EQUAL(&before, &after)) << "another thread was bound";
}

TEST(CpuMapTest, FindsNoNodeWhereThereIsOnlyOne) {
  const CpuMap cpus;
  std::vector<char> memory(1 << 20, 1);
  const int node = cpus.NodeOf(memory.data());
  if (cpus.nodes() == 1) {
    EXPECT_EQ(node, -1);
  } else {
    EXPECT_LT(node, cpus.nodes());
  }
}

TEST(CpuMapTest, CountsCoresNotHardwareThreadsByNode) {
  const PretendedMachine machine("node:2 core:3 pu:2", /*real=*/false);
  const CpuMap cpus;
  EXPECT_EQ(cpus.nodes(), 2);
  EXPECT_EQ(cpus.node_of_core(), (std::vector<int>{0, 0, 0, 1, 1, 1}));
}

TEST(CpuMapTest, BindsToTheCoresOfOneNode) {
  const cpu_set_t mask = Mask();
  if (!CPU_ISSET(0, &mask) || !CPU_ISSET(1, &mask)) {
    GTEST_SKIP() << "needs processors 0 and 1";
  }
  const PretendedMachine machine("node:2 core:2 pu:1(indexes=0,2,1,3)",
                                 /*real=*/true);
  const CpuMap cpus;
  ASSERT_EQ(cpus.node_of_core(), (std::vector<int>{0, 1}));
  for (int node : {0, 1}) {
    std::thread([&] {
      EXPECT_EQ(cpus.BindCallingThread(node), "");
      const cpu_set_t bound = Mask();
      EXPECT_EQ(CPU_COUNT(&bound), 1);
      EXPECT_TRUE(CPU_ISSET(node, &bound));
    }).join();
  }
  const std::vector<char> memory(1 << 20, 1);
  EXPECT_EQ(cpus.NodeOf(memory.data() + (1 << 19)), 0) << "the kernel has one";
}

// In a process of its own, confined to one processor.
[[noreturn]] void ExitWithCoresOfOneProcessor() {
  const cpu_set_t all = Mask();
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  if (sched_setaffinity(0, sizeof(one), &one) != 0) std::_Exit(100);
  std::_Exit(static_cast<int>(CpuMap().node_of_core().size()));
}

TEST(CpuMapDeathTest, HasTheCoresOfTheAffinityMask) {
  EXPECT_EXIT(ExitWithCoresOfOneProcessor(), testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace castor::internal
