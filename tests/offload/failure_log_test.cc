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

TEST(FailureLogTest, IsOkWhileNothingFailed) {
  const FailureLog failures;
  EXPECT_THAT(failures.Summary(), IsOk());
  EXPECT_EQ(failures.count(), 0);
}

TEST(FailureLogTest, ReportsTheFirstAsItIs) {
  const FailureLog failures;
  failures.Add(IoError("drive 1 is gone"));
  EXPECT_EQ(failures.Summary().code(), ErrorCode::kIoError);
  EXPECT_EQ(failures.Summary().message(), "drive 1 is gone");
}

TEST(FailureLogTest, CountsThoseThatFollowButNotTheSameOneAgain) {
  const FailureLog failures;
  failures.Add(IoError("drive 1 is gone"));
  failures.Add(IoError("drive 1 is gone"));  // met by who waited for it
  EXPECT_EQ(failures.Summary().message(), "drive 1 is gone");
  failures.Add(DataLoss("chunk 3 is damaged"));
  EXPECT_EQ(failures.Summary().message(),
            "drive 1 is gone (1 more failure followed)");
  failures.Add(DataLoss("chunk 4 is damaged"));
  EXPECT_EQ(failures.Summary().message(),
            "drive 1 is gone (2 more failures followed)");
  EXPECT_EQ(failures.Summary().code(), ErrorCode::kIoError);
  EXPECT_EQ(failures.count(), 3);
}

TEST(FailureLogTest, CopiesShareWhatTheyKnow) {
  const FailureLog failures;
  const FailureLog copy = failures;  // NOLINT: that is the point
  copy.Add(Internal("a defect"));
  EXPECT_EQ(failures.count(), 1);
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
