// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/timer.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "offload/event.h"
#include "offload/internal/timer_queue.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using internal::TimerQueue;

constexpr int64_t kMillisecond = 1'000'000;

TEST(SteadyTimerTest, RunsATaskNotBeforeItIsDue) {
  SteadyTimer timer;
  const int64_t due = timer.NowNs() + 20 * kMillisecond;
  int64_t ran_at = 0;
  const EventSource ran;
  timer.At(due, [&] {
    ran_at = timer.NowNs();
    ran.Complete();
  });
  EXPECT_TRUE(ran.event().Wait().ok());
  EXPECT_GE(ran_at, due);
}

TEST(SteadyTimerTest, WhatIsDueAlreadyRunsOnItsOwnThread) {
  SteadyTimer timer;
  const EventSource ran;
  std::thread::id thread;
  timer.At(timer.NowNs() - kMillisecond, [&] {
    thread = std::this_thread::get_id();
    ran.Complete();
  });
  EXPECT_TRUE(ran.event().Wait().ok());
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(SteadyTimerTest, RunsTasksByWhenTheyAreDueThenInOrder) {
  SteadyTimer timer;
  std::vector<int> ran;
  const EventSource last;
  const int64_t now = timer.NowNs() + 20 * kMillisecond;
  timer.At(now + 3 * kMillisecond, [&] {
    ran.push_back(4);
    last.Complete();
  });
  timer.At(now + 2 * kMillisecond, [&] { ran.push_back(2); });
  // The one that the thread sleeps for is no longer the next.
  timer.At(now + kMillisecond, [&] { ran.push_back(1); });
  timer.At(now + 2 * kMillisecond, [&] { ran.push_back(3); });
  EXPECT_TRUE(last.event().Wait().ok());
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3, 4}));
}

TEST(SteadyTimerTest, TasksMayAskForMore) {
  SteadyTimer timer;
  const EventSource last;
  int left = 5;
  Timer::Task again = [&] {
    if (--left == 0) {
      last.Complete();
    } else {
      timer.At(timer.NowNs() + kMillisecond, again);
    }
  };
  timer.At(timer.NowNs(), again);
  EXPECT_TRUE(last.event().Wait().ok());
  EXPECT_EQ(left, 0);
}

TEST(SteadyTimerTest, ItsEndWaitsForEverythingAskedFor) {
  std::atomic<int> ran = 0;
  {
    SteadyTimer timer;
    for (int i = 0; i < 100; ++i) {
      timer.At(timer.NowNs() + i % 10 * kMillisecond, [&] { ++ran; });
    }
  }
  EXPECT_EQ(ran, 100);
}

TEST(SteadyTimerTest, ManyThreadsMayAsk) {
  std::atomic<int> ran = 0;
  {
    SteadyTimer timer;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) {
          timer.At(timer.NowNs() + i % 7 * 100'000, [&] { ++ran; });
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(ran, 800);
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
}  // namespace castor
