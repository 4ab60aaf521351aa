// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/ring_queue.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/test_seed.h"

namespace castor::internal {
namespace {

TEST(RingQueueTest, GivesWhatItGotInOrderWhateverItsFill) {
  std::mt19937 random(static_cast<uint32_t>(TestSeed(7)));
  RingQueue<std::unique_ptr<int>> queue;
  std::deque<int> expected;
  for (int i = 0; i < 10'000; ++i) {
    // Runs of a hundred pushes: the ring grows wherever its first element is.
    const bool pushes = (i / 100 + static_cast<int>(random() % 4)) % 4 < 2;
    if (pushes) {
      queue.push_back(std::make_unique<int>(i));
      expected.push_back(i);
    } else if (!expected.empty()) {
      EXPECT_EQ(*queue.PopFront(), expected.front());
      expected.pop_front();
    }
    ASSERT_EQ(queue.size(), expected.size());
    ASSERT_EQ(queue.empty(), expected.empty());
  }
  for (; !expected.empty(); expected.pop_front()) {
    EXPECT_EQ(*queue.PopFront(), expected.front());
  }
}

TEST(RingQueueTest, KeepsNothingOfWhatItGave) {
  RingQueue<std::shared_ptr<int>> queue;
  const auto value = std::make_shared<int>(1);
  queue.push_back(value);
  EXPECT_EQ(value.use_count(), 2);
  queue.PopFront();
  EXPECT_EQ(value.use_count(), 1);
}

TEST(RingQueueDeathTest, AnEmptyOneGivesNothing) {
  RingQueue<int> queue;
  EXPECT_DEATH(queue.PopFront(), "empty");
}

}  // namespace
}  // namespace castor::internal
