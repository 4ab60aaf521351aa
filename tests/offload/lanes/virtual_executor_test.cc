// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/virtual_executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/timer.h"
#include "offload/lanes/timer_queue.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using internal::TimerQueue;

// An event that is done at `due_ns`.
Event At(VirtualExecutor& world, int64_t due_ns) {
  EventSource source;
  Event event = source.event();
  world.At(due_ns, [source = std::move(source)] { source.Complete(); });
  return event;
}

TEST(VirtualExecutorTest, StartsAtZeroAndRunsTasksInNoTime) {
  VirtualExecutor world;
  EXPECT_EQ(world.NowNs(), 0);
  const EventSource ran;
  int64_t at = -1;
  world.Post([&] {
    at = world.NowNs();
    ran.Complete();
  });
  EXPECT_TRUE(ran.event().Wait().ok());
  EXPECT_EQ(at, 0);
}

TEST(VirtualExecutorTest, JumpsToTimersInOrderWithoutWaiting) {
  VirtualExecutor world;
  constexpr int64_t kYear = int64_t{365} * 86'400 * 1'000'000'000;
  std::vector<int64_t> ran;
  Event last;
  {
    const VirtualParticipant participant(&world);
    for (const int64_t due : {30, 10, 20, 10}) {
      world.At(due, [&] { ran.push_back(world.NowNs()); });
    }
    last = At(world, kYear);
    EXPECT_TRUE(last.Wait().ok());
    EXPECT_EQ(world.NowNs(), kYear);
  }
  EXPECT_EQ(ran, (std::vector<int64_t>{10, 10, 20, 30}));
}

TEST(VirtualExecutorTest, ATimerInThePastRunsNow) {
  VirtualExecutor world;
  const VirtualParticipant participant(&world);
  EXPECT_TRUE(At(world, 100).Wait().ok());
  EXPECT_TRUE(At(world, 50).Wait().ok());
  EXPECT_EQ(world.NowNs(), 100);
}

TEST(VirtualExecutorTest, TasksComeBeforeTimersThatAreDue) {
  VirtualExecutor world;
  std::vector<std::string> ran;
  const VirtualParticipant participant(&world);
  world.At(0, [&] { ran.push_back("timer 0"); });
  world.At(5, [&] {
    ran.push_back("timer 5a");
    world.Post([&] { ran.push_back("task of 5a"); });
  });
  world.At(5, [&] { ran.push_back("timer 5b"); });
  world.Post([&] { ran.push_back("task"); });
  EXPECT_TRUE(At(world, 6).Wait().ok());
  EXPECT_EQ(ran, (std::vector<std::string>{"task", "timer 0", "timer 5a",
                                           "task of 5a", "timer 5b"}));
}

TEST(VirtualExecutorTest, ItsEndRunsEverything) {
  int ran = 0;
  {
    VirtualExecutor world;
    world.At(1'000'000, [&] {
      world.Post([&] { ++ran; });
      ++ran;
    });
    world.Post([&] { ++ran; });
  }
  EXPECT_EQ(ran, 3);
}

TEST(VirtualExecutorTest, AForeignThreadsWaitLetsTimePass) {
  VirtualExecutor world;
  WorkerLane lane("lane", &world);
  lane.RunAsync([&](EventSource source) {
    world.At(world.NowNs() + 500, [source] { source.Complete(); });
  });
  EXPECT_TRUE(lane.Drain().ok());
  EXPECT_EQ(world.NowNs(), 500);
}

TEST(VirtualParticipantTest, NothingRunsWhileItWorks) {
  VirtualExecutor world;
  std::atomic<int> ran = 0;
  const VirtualParticipant participant(&world);
  world.Post([&] { ++ran; });
  world.At(0, [&] { ++ran; });
  // Long enough for a thread that would not stand still.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(At(world, 1).Wait().ok());
  EXPECT_EQ(ran, 2);
}

// The completion and the waiter's next post, in both orders: the task that
// completes goes on to its end first.
TEST(VirtualParticipantTest, WakesAfterTheTaskThatCompletes) {
  for (int round = 0; round < 200; ++round) {
    VirtualExecutor world;
    const VirtualParticipant participant(&world);
    std::vector<int> order;
    const EventSource source;
    world.Post([&] {
      source.Complete();
      order.push_back(1);
      world.Post([&] { order.push_back(3); });
    });
    EXPECT_TRUE(source.event().Wait().ok());
    order.push_back(2);
    EXPECT_TRUE(At(world, 0).Wait().ok());
    ASSERT_EQ(order, (std::vector<int>{1, 2, 3}));
  }
}

TEST(VirtualParticipantTest, WaitsForWhatIsDoneAndWhatAnotherThreadCompletes) {
  VirtualExecutor world;
  const VirtualParticipant participant(&world);
  const EventSource done;
  done.Complete();
  EXPECT_TRUE(done.event().Wait().ok());
  const EventSource foreign;
  std::thread completer([foreign] { foreign.Complete(IoError("disk gone")); });
  EXPECT_EQ(foreign.event().Wait().code(), ErrorCode::kIoError);
  completer.join();
}

TEST(VirtualParticipantTest, ABusyLaneMayEndInIt) {
  VirtualExecutor world;
  const VirtualParticipant participant(&world);
  int ran = 0;
  {
    WorkerLane lane("lane", &world);
    // As many as one turn runs, which is where a lane might post a turn of
    // nothing after its last operation.
    for (int i = 0; i < 256; ++i) {
      lane.Run([&] {
        ++ran;
        return OkStatus();
      });
    }
    lane.Wait(At(world, 1000));
    for (int i = 0; i < 63; ++i) {
      lane.Run([&] {
        ++ran;
        return OkStatus();
      });
    }
  }
  EXPECT_EQ(ran, 319);
  EXPECT_EQ(world.NowNs(), 1000);
}

// The race of what a lane's turn does with what the owner queues: with a
// participant there is none, so lanes that were queued to in one order run in
// one order.
TEST(VirtualParticipantTest, QueueingTheSameMakesTheSameRunEveryTime) {
  const auto run = [] {
    VirtualExecutor world;
    const VirtualParticipant participant(&world);
    std::vector<std::pair<int, int64_t>> ran;
    std::vector<std::unique_ptr<WorkerLane>> lanes;
    for (int i = 0; i < 3; ++i) {
      lanes.push_back(std::make_unique<WorkerLane>("lane", &world));
    }
    for (int step = 0; step < 20; ++step) {
      Event last;
      for (int i = 0; i < 9; ++i) {
        WorkerLane& lane = *lanes[static_cast<size_t>(i) % 3];
        lane.Run([&, i] {
          ran.emplace_back(i, world.NowNs());
          return OkStatus();
        });
        if (i % 2 == 0) {
          lane.RunAsync([&, i](EventSource source) {
            world.At(world.NowNs() + 7 * i, [source] { source.Complete(); });
          });
        }
        last = lane.Record();
      }
      last.Wait().IgnoreError();
    }
    for (const auto& lane : lanes) lane->Drain().IgnoreError();
    ran.emplace_back(-1, world.NowNs());
    return ran;
  };
  const auto first = run();
  for (int round = 0; round < 30; ++round) ASSERT_EQ(run(), first);
}

TEST(VirtualParticipantTest, SeveralTakeTurns) {
  VirtualExecutor world;
  std::atomic<int> at_once = 0;
  std::atomic<bool> alone = true;
  std::vector<std::vector<int64_t>> woken(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const VirtualParticipant participant(&world);
      for (int i = 1; i <= 50; ++i) {
        if (++at_once != 1) alone = false;
        const Event next = At(world, i * (t + 1) * 10);
        --at_once;
        next.Wait().IgnoreError();
        woken[static_cast<size_t>(t)].push_back(world.NowNs());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(alone);
  for (const auto& times : woken) {
    EXPECT_EQ(times.size(), 50u);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  }
}

TEST(VirtualParticipantDeathTest, AThreadTakesPartOnce) {
  EXPECT_DEATH(
      {
        VirtualExecutor world;
        const VirtualParticipant one(&world);
        const VirtualParticipant two(&world);
      },
      "before");
}

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
  const std::function<void()> again = [&] {
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

TEST(TimerQueueDeathTest, HasNoNextWhenEmpty) {
  TimerQueue queue;
  EXPECT_DEATH(queue.PopNext(), "empty");
  EXPECT_DEATH(queue.next_due_ns(), "empty");
}

}  // namespace
}  // namespace castor
