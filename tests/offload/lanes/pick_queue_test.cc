// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/pick_queue.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::Pair;

class PickQueueTest : public testing::Test {
 protected:
  void Add(int64_t key, const Event& ready = Event(), size_t turns = 1,
           PickPlace place = PickPlace::kGivesWay) {
    queue_.Add(key, turns, place, ready,
               [this, key](std::span<int> given, const Status& status) {
                 for (const int turn : given) picked_.emplace_back(key, turn);
                 status_ = status;
               });
  }

  PickQueue<int> queue_;
  std::vector<std::pair<int64_t, int>> picked_;  // keys and turns
  Status status_;                                // of the last one
};

TEST_F(PickQueueTest, TheLeastKeyGetsTheNextTurn) {
  for (const int64_t key : {5, 2, 9}) Add(key);
  EXPECT_TRUE(picked_.empty());
  queue_.AddTurn(0);
  queue_.AddTurn(1);
  EXPECT_THAT(picked_, ElementsAre(Pair(2, 0), Pair(5, 1)));
}

TEST_F(PickQueueTest, OfEqualKeysTheFirstAddedGoesFirst) {
  std::vector<int> order;
  const EventSource late;
  const auto note = [&](int which) {
    return [&order, which](std::span<int>, const Status&) {
      order.push_back(which);
    };
  };
  queue_.Add(1, 1, PickPlace::kGivesWay, late.event(), note(0));
  queue_.Add(1, 1, PickPlace::kGivesWay, Event(), note(1));
  late.Complete();
  queue_.AddTurn(0);
  queue_.AddTurn(0);
  EXPECT_THAT(order, ElementsAre(0, 1));
}

TEST_F(PickQueueTest, WorkThatIsNotReadyHoldsNoTurn) {
  const EventSource ready;
  Add(1, ready.event());
  Add(7);
  queue_.AddTurn(3);
  EXPECT_THAT(picked_, ElementsAre(Pair(7, 3)));
  ready.Complete();
  EXPECT_EQ(picked_.size(), 1u);
  queue_.AddTurn(4);
  EXPECT_THAT(picked_, ElementsAre(Pair(7, 3), Pair(1, 4)));
}

TEST_F(PickQueueTest, WorkGetsAllItsTurnsAtOnceAndIsNotPassed) {
  Add(2, Event(), 3);
  queue_.AddTurn(0);
  Add(5);  // would pass
  queue_.AddTurn(1);
  EXPECT_TRUE(picked_.empty());
  Add(1);  // is more urgent
  EXPECT_THAT(picked_, ElementsAre(Pair(1, 0)));
  queue_.AddTurn(2);
  queue_.AddTurn(3);
  EXPECT_THAT(picked_,
              ElementsAre(Pair(1, 0), Pair(2, 1), Pair(2, 2), Pair(2, 3)));
  queue_.AddTurn(4);
  EXPECT_THAT(picked_.back(), Pair(5, 4));
}

TEST_F(PickQueueTest, WorkThatHoldsItsPlaceIsNotPassed) {
  const EventSource ready;
  Add(2, ready.event(), 1, PickPlace::kHolds);
  Add(7);
  queue_.AddTurn(0);
  EXPECT_TRUE(picked_.empty());
  Add(1);  // is more urgent
  EXPECT_THAT(picked_, ElementsAre(Pair(1, 0)));
  queue_.AddTurn(1);
  queue_.AddTurn(2);
  EXPECT_EQ(picked_.size(), 1u);
  ready.Complete();
  EXPECT_THAT(picked_, ElementsAre(Pair(1, 0), Pair(2, 1), Pair(7, 2)));
}

TEST_F(PickQueueTest, WorkHearsHowItsOwnEventEnded) {
  queue_.AddTurn(0);
  Add(2, Event::Failed(IoError("the bytes did not arrive")));
  EXPECT_THAT(status_, StatusIs(ErrorCode::kIoError));
}

TEST_F(PickQueueTest, WorkMayAddWorkAndTurnsWithoutNesting) {
  int depth = 0;
  int deepest = 0;
  int left = 100000;
  std::function<void(std::span<int>, const Status&)> again =
      [&](std::span<int> turns, const Status&) {
        deepest = std::max(deepest, ++depth);
        if (--left > 0)
          queue_.Add(left, 1, PickPlace::kGivesWay, Event(), again);
        queue_.AddTurn(turns[0]);
        --depth;
      };
  queue_.Add(0, 1, PickPlace::kGivesWay, Event(), again);
  queue_.AddTurn(0);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(deepest, 1);
}

TEST_F(PickQueueTest, EveryThreadsWorkRunsOnceAndOneAtATime) {
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  std::atomic<int> inside = 0;
  std::atomic<bool> together = false;
  std::vector<int> runs(kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        queue_.Add(i, 1, PickPlace::kGivesWay, Event(),
                   [&, t, i](std::span<int> turns, const Status&) {
                     if (inside.fetch_add(1) != 0) together = true;
                     ++runs[static_cast<size_t>(t * kEach + i)];
                     inside.fetch_sub(1);
                     queue_.AddTurn(turns[0]);
                   });
        if (i == 0) queue_.AddTurn(t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(together);
  EXPECT_THAT(runs, testing::Each(1));
}

}  // namespace
}  // namespace castor
