// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/clock.h"

#include <chrono>
#include <cstdint>
#include <thread>

#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(SteadyClockTest, NeverGoesBack) {
  const SteadyClock clock;
  int64_t last = clock.NowNs();
  for (int i = 0; i < 10000; ++i) {
    const int64_t now = clock.NowNs();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SteadyClockTest, CountsNanoseconds) {
  const SteadyClock clock;
  const int64_t start = clock.NowNs();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(clock.NowNs() - start, 5'000'000);
}

TEST(SteadyClockTest, TheMachinesIsOneAndTheSame) {
  const int64_t before = SteadyClock().NowNs();
  EXPECT_EQ(MachineClock(), MachineClock());
  EXPECT_GE(MachineClock()->NowNs(), before);
}

}  // namespace
}  // namespace castor
