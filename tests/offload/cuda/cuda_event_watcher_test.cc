// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_event_watcher.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(CudaEventWatcherTest, RunsWhatIsPostedInOrderWhenPolled) {
  CudaEventWatcher watcher(CudaEventWatcher::Thread::kNone);
  std::vector<int> ran;
  watcher.Post([&] {
    ran.push_back(1);
    watcher.Post([&] { ran.push_back(3); });
  });
  watcher.Post([&] { ran.push_back(2); });
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(watcher.Poll(), 1u);
  EXPECT_THAT(ran, testing::ElementsAre(1, 2));
  EXPECT_EQ(watcher.Poll(), 0u);
  EXPECT_THAT(ran, testing::ElementsAre(1, 2, 3));
}

TEST(CudaEventWatcherTest, ItsThreadRunsWhatIsPostedByManyBeforeItGoes) {
  std::atomic<int> ran = 0;
  {
    CudaEventWatcher watcher(CudaEventWatcher::Thread::kOwn);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 100; ++j) watcher.Post([&ran] { ++ran; });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(ran, 400);
}

TEST(CudaEventWatcherTest, ServesTheRestWhenItGoesWithoutAThread) {
  int ran = 0;
  {
    CudaEventWatcher watcher(CudaEventWatcher::Thread::kNone);
    watcher.Post([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace castor
