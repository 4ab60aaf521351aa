// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/internal/timer_queue.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/test_seed.h"

namespace castor::internal {
namespace {

TEST(TimerQueueTest, IsEmptyAtFirst) {
  TimerQueue queue;
  EXPECT_TRUE(queue.empty());
}

TEST(TimerQueueTest, GivesTasksByTimeAndThenByOrderOfAdding) {
  std::mt19937_64 random(TestSeed(3));
  TimerQueue queue;
  std::vector<std::pair<int64_t, int>> ran, expected;
  for (int i = 0; i < 500; ++i) {
    const auto due = static_cast<int64_t>(random() % 50);
    expected.emplace_back(due, i);
    queue.Add(due, [&ran, due, i] { ran.emplace_back(due, i); });
  }
  std::sort(expected.begin(), expected.end());
  while (!queue.empty()) {
    const int64_t due = queue.next_due_ns();
    queue.PopNext()();
    ASSERT_EQ(ran.back().first, due);
  }
  EXPECT_EQ(ran, expected);
}

TEST(TimerQueueTest, TakesMoreWhileItIsEmptied) {
  TimerQueue queue;
  std::vector<int> ran;
  queue.Add(10, [&] { ran.push_back(10); });
  queue.Add(30, [&] { ran.push_back(30); });
  queue.PopNext()();
  queue.Add(20, [&] { ran.push_back(20); });
  queue.Add(30, [&] { ran.push_back(31); });
  while (!queue.empty()) queue.PopNext()();
  EXPECT_EQ(ran, (std::vector<int>{10, 20, 30, 31}));
}

TEST(TimerQueueDeathTest, HasNoNextWhenEmpty) {
  TimerQueue queue;
  EXPECT_DEATH(queue.PopNext(), "empty");
  EXPECT_DEATH(queue.next_due_ns(), "empty");
}

}  // namespace
}  // namespace castor::internal
