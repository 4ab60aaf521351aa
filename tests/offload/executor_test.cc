// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/executor.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/event.h"
#include "tests/support/manual_executor.h"

namespace castor {
namespace {

using testing::ElementsAre;

TEST(ThreadPoolTest, RunsOffTheCallersThread) {
  ThreadPool pool(1);
  const EventSource ran;
  std::thread::id id;
  pool.Post([&] {
    id = std::this_thread::get_id();
    ran.Complete();
  });
  ran.event().Wait().IgnoreError();
  EXPECT_NE(id, std::this_thread::get_id());
}

TEST(ThreadPoolTest, OneThreadRunsInOrder) {
  std::vector<int> order;
  {
    ThreadPool pool(1);
    for (int i = 0; i < 100; ++i) pool.Post([&, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(ThreadPoolTest, RunsAsManyTasksAtATimeAsItHasThreads) {
  ThreadPool pool(3);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  std::atomic<int> arrived = 0;
  std::vector<EventSource> done(3);
  for (const EventSource& source : done) {
    pool.Post([&, source] {
      // Each waits for the two others: passes only on three threads.
      ++arrived;
      while (arrived < 3) std::this_thread::yield();
      {
        std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      }
      source.Complete();
    });
  }
  for (const EventSource& source : done) source.event().Wait().IgnoreError();
  EXPECT_EQ(ids.size(), 3u);
}

TEST(ThreadPoolTest, TheDestructorRunsWhatTasksPost) {
  std::atomic<int> ran = 0;
  {
    ThreadPool pool(2);
    for (int i = 0; i < 10; ++i) {
      pool.Post([&] {
        ++ran;
        pool.Post([&] {
          ++ran;
          pool.Post([&] { ++ran; });
        });
      });
    }
  }
  EXPECT_EQ(ran, 30);
}

TEST(ThreadPoolTest, LetsGoOfATaskBeforeTheNextRuns) {
  auto held = std::make_shared<int>(0);
  std::weak_ptr<int> watched = held;
  bool gone = false;
  {
    ThreadPool pool(1);
    pool.Post([held = std::move(held)] { ++*held; });
    pool.Post([&] { gone = watched.expired(); });
  }
  EXPECT_TRUE(gone);
}

TEST(ThreadPoolTest, TakesTasksFromManyThreads) {
  std::atomic<int> ran = 0;
  {
    ThreadPool pool(2);
    std::vector<std::thread> posters;
    for (int i = 0; i < 4; ++i) {
      posters.emplace_back([&] {
        for (int j = 0; j < 500; ++j) pool.Post([&] { ++ran; });
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  EXPECT_EQ(ran, 2000);
}

// The last task may end the pool's life while the thread that posted it is
// still inside Post.
TEST(ThreadPoolTest, MayBeDestroyedAsSoonAsItsLastTaskRan) {
  for (int round = 0; round < 200; ++round) {
    auto pool = std::make_unique<ThreadPool>(1);
    EventSource ran;
    std::thread poster([target = pool.get(), ran] {
      target->Post([ran] { ran.Complete(); });
    });
    ran.event().Wait().IgnoreError();
    pool.reset();
    poster.join();
  }
}

TEST(ThreadPoolDeathTest, NeedsAThread) {
  EXPECT_DEATH(ThreadPool(0), "threads >= 1");
}

TEST(ManualExecutorTest, RunsWhatTheTestChooses) {
  ManualExecutor executor;
  std::vector<int> order;
  for (int i = 0; i < 4; ++i) executor.Post([&, i] { order.push_back(i); });
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(executor.pending(), 4u);
  EXPECT_TRUE(executor.RunOne(2));
  EXPECT_TRUE(executor.RunOne());
  EXPECT_FALSE(executor.RunOne(2));
  executor.Post([&] { executor.Post([&] { order.push_back(5); }); });
  EXPECT_EQ(executor.RunAll(), 4u);
  EXPECT_THAT(order, ElementsAre(2, 0, 1, 3, 5));
}

}  // namespace
}  // namespace castor
