// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/failure_log.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

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
