// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/timeline/event_loop.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace castor::internal {
namespace {

constexpr int64_t kLast = std::numeric_limits<int64_t>::max();

// A speed and a size that each may be there together take longer than the clock
// can say.
TEST(EventLoopTest, ATimeBeyondTheClockIsItsLastMoment) {
  EventLoop loop;
  int ran = 0;
  loop.At(loop.FromNow(kLast - 5), [&] {
    ++ran;
    loop.At(loop.FromNow(10), [&] {
      ++ran;
      loop.At(loop.FromNow(kLast), [&] { ++ran; });
    });
  });
  loop.RunAll();
  EXPECT_EQ(ran, 3);
  EXPECT_EQ(loop.now_ns(), kLast);
  EXPECT_EQ(EventLoop::Later(3, 4), 7);
  EXPECT_EQ(EventLoop::Later(kLast - 1, 2), kLast);
}

}  // namespace
}  // namespace castor::internal
