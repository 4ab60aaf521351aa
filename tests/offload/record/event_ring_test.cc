// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/event_ring.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace castor {
namespace {

RunEvent Numbered(int64_t number) {
  RunEvent event;
  event.bytes = number;
  return event;
}

TEST(EventRingTest, GivesEventsBackInOrderOverManyRounds) {
  EventRing ring(4);
  int64_t pushed = 0;
  int64_t popped = 0;
  RunEvent event;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 1 + round % 4; ++i) {
      ASSERT_TRUE(ring.Push(Numbered(pushed++)));
    }
    while (ring.Pop(&event)) ASSERT_EQ(event.bytes, popped++);
  }
  EXPECT_EQ(popped, pushed);
  EXPECT_EQ(ring.pushed(), static_cast<uint64_t>(pushed));
  EXPECT_EQ(ring.popped(), static_cast<uint64_t>(popped));
}

TEST(EventRingTest, RefusesWhenFullAndKeepsWhatItHas) {
  EventRing ring(2);
  RunEvent event;
  EXPECT_FALSE(ring.Pop(&event));
  EXPECT_TRUE(ring.Push(Numbered(1)));
  EXPECT_TRUE(ring.Push(Numbered(2)));
  EXPECT_FALSE(ring.Push(Numbered(3)));
  ASSERT_TRUE(ring.Pop(&event));
  EXPECT_EQ(event.bytes, 1);
  EXPECT_TRUE(ring.Push(Numbered(4)));
  EXPECT_FALSE(ring.Push(Numbered(5)));
  ASSERT_TRUE(ring.Pop(&event));
  EXPECT_EQ(event.bytes, 2);
  ASSERT_TRUE(ring.Pop(&event));
  EXPECT_EQ(event.bytes, 4);
  EXPECT_FALSE(ring.Pop(&event));
}

TEST(EventRingDeathTest, WantsAPowerOfTwo) {
  EXPECT_DEATH(EventRing(3), "has_single_bit");
  EXPECT_DEATH(EventRing(1), "capacity");
}

TEST(EventRingTest, EveryEventOfEveryThreadComesOutOnceAndInItsOrder) {
  constexpr int kThreads = 4;
  constexpr int64_t kEach = 20'000;
  EventRing ring(64);
  std::vector<int64_t> refused(kThreads, 0);
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < kEach; ++i) {
        RunEvent event = Numbered(i);
        event.rank = t;
        event.begin_ns = event.end_ns = i * kThreads + t;
        if (!ring.Push(event)) {
          ++refused[static_cast<size_t>(t)];
          std::this_thread::yield();
        }
      }
      --running;
    });
  }
  std::vector<int64_t> last(kThreads, -1);
  std::vector<int64_t> got(kThreads, 0);
  RunEvent event;
  while (true) {
    const bool done = running == 0;
    while (ring.Pop(&event)) {
      const auto t = static_cast<size_t>(event.rank);
      ASSERT_GT(event.bytes, last[t]);
      ASSERT_EQ(event.begin_ns, event.bytes * kThreads + event.rank);
      last[t] = event.bytes;
      ++got[t];
    }
    if (done) break;
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(got[t] + refused[t], kEach);
    EXPECT_GT(got[t], 0);
  }
}

}  // namespace
}  // namespace castor
