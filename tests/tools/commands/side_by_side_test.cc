// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/side_by_side.h"

#include <sched.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

using testing::Each;

TEST(SideBySideTest, EveryNumberHasOneCall) {
  for (const size_t count : {0u, 1u, 2u, 257u}) {
    std::vector<int> calls(count);
    SideBySide(count, [&](size_t i) { ++calls[i]; });
    EXPECT_THAT(calls, Each(1));
  }
}

TEST(SideBySideTest, AsManyRunAtOnceAsThereAreCores) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  const auto cores = CPU_COUNT(&allowed);
  std::latch all(cores);
  std::atomic<int> met = 0;
  // None ends before all have begun.
  SideBySide(static_cast<size_t>(cores), [&](size_t) {
    all.arrive_and_wait();
    ++met;
  });
  EXPECT_EQ(met, cores);
}

TEST(SideBySideTest, NoMoreRunAtOnceThanAreAllowed) {
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  SideBySide(
      50,
      [&](size_t) {
        const int now = ++running;
        int before = most;
        while (before < now && !most.compare_exchange_weak(before, now)) {
        }
        std::this_thread::yield();
        --running;
      },
      1);
  EXPECT_EQ(most, 1);
}

TEST(SideBySideTest, OneCoreIsTheCallersThread) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (size_t core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  std::vector<size_t> order;
  const std::thread::id caller = std::this_thread::get_id();
  SideBySide(5, [&](size_t i) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(i);
  });
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4));
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace castor
