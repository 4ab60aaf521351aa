// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "gtest/gtest.h"
#include "tools/measure/timings.h"

namespace castor {
namespace {

TEST(MemoryTimingTest, TimesBothOnTwoThreads) {
  WorkerPool pool({.threads = 2});
  const Result<MemoryTimes> times = TimeMemory(pool, MiB(3), {.seconds = 0.02});
  ASSERT_TRUE(times.ok()) << times.status();
  for (const TimedRate& rate : {times->triad, times->adam}) {
    EXPECT_GT(rate.bytes_per_second, 1e6);
    EXPECT_LT(rate.bytes_per_second, 1e14);
    EXPECT_GE(rate.spread, 0);
    EXPECT_GE(rate.samples, 1);
  }
}

TEST(MemoryTimingTest, StopsWhereAskedTo) {
  WorkerPool pool({.threads = 1});
  RoundOptions options;
  options.stop = [] { return true; };
  EXPECT_EQ(TimeMemory(pool, MiB(1), options).status().code(),
            ErrorCode::kStoppedEarly);
}

TEST(MemoryTimingTest, MoreMemoryThanThereIsIsAFailure) {
  WorkerPool pool({.threads = 1});
  EXPECT_EQ(TimeMemory(pool, GiB(1 << 20), {}).status().code(),
            ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace castor
