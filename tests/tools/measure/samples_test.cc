// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/measure/samples.h"

#include <vector>

#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(SamplesTest, AnOutlierDoesNotMoveAMedian) {
  EXPECT_EQ(MedianOf({3}), 3);
  EXPECT_EQ(MedianOf({1, 2, 3, 4, 1000}), 3);
  EXPECT_EQ(MedianOf({5, 1}), 1);  // the lower of two
  EXPECT_EQ(SpreadOf({4}), 0);
  EXPECT_DOUBLE_EQ(SpreadOf({1000, 8, 9, 10, 0}), (10.0 - 8.0) / 9.0);
}

TEST(SamplesTest, KeepsTheMediansOfEachSize) {
  SizeSamples samples({KiB(1), KiB(4)});
  for (const double seconds : {3.0, 1.0, 2.0}) samples.Add(1, seconds);
  samples.Add(0, 7);
  const std::vector<TimedSize> want = {
      {.bytes = KiB(1), .seconds = 7, .samples = 1},
      {.bytes = KiB(4), .seconds = 2, .samples = 3}};
  EXPECT_EQ(samples.medians(), want);
}

TEST(SamplesTest, GoesRoundInTurns) {
  std::vector<size_t> calls;
  const auto once = [&calls](size_t i) {
    calls.push_back(i);
    return OkStatus();
  };
  ASSERT_TRUE(RunRounds(2, {.seconds = 1e-9}, once).ok());
  // Time is over at once: what was asked for at least, or what patience allows.
  ASSERT_GE(calls.size(), 2u);
  EXPECT_EQ(calls.size() % 2, 0u);
  for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i], i % 2);
  calls.clear();
  ASSERT_TRUE(RunRounds(1, {.seconds = 0.01}, once).ok());
  EXPECT_GE(calls.size(), 3u);
  calls.clear();
  ASSERT_TRUE(RunRounds(2, {.seconds = 1000, .most = 7}, once).ok());
  EXPECT_EQ(calls.size(), 14u);
}

TEST(SamplesTest, EndsWithTheFirstFailureAndWhereAskedTo) {
  int calls = 0;
  const auto fail = [&calls](size_t) {
    return ++calls == 3 ? IoError("broken") : OkStatus();
  };
  EXPECT_EQ(RunRounds(5, {}, fail).code(), ErrorCode::kIoError);
  EXPECT_EQ(calls, 3);
  int asked = 0;
  RoundOptions options;
  options.stop = [&asked] { return ++asked == 4; };
  calls = 10;
  EXPECT_EQ(RunRounds(5, options, fail).code(), ErrorCode::kStoppedEarly);
  EXPECT_EQ(calls, 13);
}

}  // namespace
}  // namespace castor
