// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/executor.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/lanes/failure_log.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;

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

TEST(FailureLogTest, CountsThoseThatFollowTheFirstButNotTheSameOneAgain) {
  const FailureLog failures;
  EXPECT_THAT(failures.Summary(), IsOk());
  failures.Add(IoError("drive 1 is gone"));
  failures.Add(IoError("drive 1 is gone"));  // met by who waited for it
  EXPECT_THAT(failures.Summary(),
              StatusIs(ErrorCode::kIoError, "drive 1 is gone"));
  const FailureLog copy = failures;  // NOLINT: shares what it knows
  copy.Add(DataLoss("chunk 3 is damaged"));
  EXPECT_THAT(failures.Summary(),
              StatusIs(ErrorCode::kIoError,
                       "drive 1 is gone (1 more failure followed)"));
  failures.Add(DataLoss("chunk 4 is damaged"));
  EXPECT_THAT(failures.Summary(),
              StatusIs(ErrorCode::kIoError,
                       "drive 1 is gone (2 more failures followed)"));
  EXPECT_EQ(failures.count(), 3);
}

TEST(FailureLogTest, TheFirstOfManyThreadsIsHeardOnceAndAllAreCounted) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> heard = 0;
    Status first;
    const FailureLog failures([&](const Status& status) {
      ++heard;
      first = status;
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back(
          [&, t] { failures.Add(Internal("failure " + std::to_string(t))); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(heard, 1);
    EXPECT_EQ(failures.count(), 4);
    EXPECT_EQ(failures.Summary().message(),
              std::string(first.message()) + " (3 more failures followed)");
  }
}

}  // namespace
}  // namespace castor
