// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/size_event_queue.h"

#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using Event = SizeEventQueue::Event;

TEST(SizeEventQueueTest, ARangeOfOneSizeIsEnough) {
  SizeEventQueue queue(256, 256, 0);
  queue.Push({256, 2});
  queue.Push({256, 1});
  Event event;
  ASSERT_TRUE(queue.Pop(&event));
  EXPECT_EQ(event.item, 1);
}

TEST(SizeEventQueueTest, EqualsAnOrderedSetUnderRandomUse) {
  std::mt19937_64 random(TestSeed(7));
  for (int round = 0; round < 300; ++round) {
    const int64_t first = static_cast<int64_t>(random() % 1000);
    const int64_t last = first + static_cast<int64_t>(random() % 5000);
    SizeEventQueue queue(first, last, random() % 200);
    std::multiset<std::pair<int64_t, int32_t>> model;
    int64_t now = first;
    for (int step = 0; step < 500; ++step) {
      if (random() % 5 < 3) {
        const int64_t size =
            now + static_cast<int64_t>(random() %
                                       static_cast<uint64_t>(last - now + 1));
        const int32_t item = static_cast<int32_t>(random() % 50);
        queue.Push({size, item});
        model.emplace(size, item);
        continue;
      }
      Event event;
      ASSERT_EQ(queue.Pop(&event), !model.empty());
      if (model.empty()) continue;
      ASSERT_EQ(std::make_pair(event.size, event.item), *model.begin());
      model.erase(model.begin());
      now = event.size;
    }
  }
}

}  // namespace
}  // namespace castor
