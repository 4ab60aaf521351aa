// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/training.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor::gpt {
namespace {

using testing::HasSubstr;

TEST(TrainingTest, TheDefaultsHaveAMeaning) {
  EXPECT_THAT(Validate(TrainOptions()), IsOk());
}

TEST(TrainingTest, RefusesWhatHasNone) {
  const auto refused = [](auto change, const std::string& message) {
    TrainOptions options;
    change(options);
    EXPECT_THAT(Validate(options),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(message)));
  };
  refused([](TrainOptions& o) { o.model.heads = 3; },
          "not a multiple of heads 3");
  refused([](TrainOptions& o) { o.batch = 0; }, "batch is 0");
  refused([](TrainOptions& o) { o.accumulate = -1; }, "accumulate is -1");
  refused([](TrainOptions& o) { o.ranks = 0; }, "ranks is 0");
  refused([](TrainOptions& o) { o.steps = 0; }, "steps is 0");
  refused([](TrainOptions& o) { o.dtype = DType::kF64; }, "F64");
  refused([](TrainOptions& o) { o.warmup = -1; }, "warm-up of -1");
  refused([](TrainOptions& o) { o.lr = -1; }, "lr is -1");
  refused([](TrainOptions& o) { o.digest_step = o.steps + 1; }, "no step 31");
}

TEST(TrainingTest, RoomForEverythingHoldsAllStatesTwice) {
  TrainOptions options;
  const Bytes states = Bytes(16 * GptParams(options.model).elements());
  EXPECT_GT(RoomForEverything(options), 2 * states);
}

TEST(TrainingTest, KnowsAboutWhatTheTrainerItselfTakes) {
  TrainOptions options;
  const double activations = TrainerBytes(options, /*reference=*/false);
  EXPECT_GT(activations, 140e6);
  EXPECT_LT(activations, 200e6);
  options.ranks = 2;
  EXPECT_EQ(TrainerBytes(options, false), 2 * activations);
  options.ranks = 1;
  EXPECT_EQ(TrainerBytes(options, true) - activations, 16.0 * 28'634'624);
}

TEST(TrainingTest, RefusesWhatTheMachineCannotHold) {
  EXPECT_THAT(CheckMemory(1e6), IsOk());
  EXPECT_THAT(CheckMemory(1e18),
              StatusIs(ErrorCode::kUnavailable, HasSubstr("are available")));
}

// A run of any length is summed up in bounded memory.
TEST(StepHistoryTest, KeepsBothEndsAndSumsOfAll) {
  StepHistory history;
  EXPECT_TRUE(history.empty());
  constexpr int64_t kSteps = 5 * int64_t{StepHistory::kLast} + 7;
  for (int64_t step = 1; step <= kSteps; ++step) {
    StepReport report;
    report.step = step;
    report.seconds = 0.5;
    report.tokens = 3;
    history.push_back(report);
    const auto made = static_cast<size_t>(step);
    EXPECT_EQ(history.size(), made);
    EXPECT_EQ(history.last().size(), std::min(made, StepHistory::kLast));
    EXPECT_EQ(history.last().back().step, step);
    EXPECT_EQ(history[made - history.last().size()].step,
              history.last().front().step);
  }
  ASSERT_EQ(history.first().size(), StepHistory::kFirst);
  EXPECT_EQ(history.first().back().step, 5);
  EXPECT_EQ(history.front().step, 1);
  EXPECT_EQ(history.tokens(), 3 * kSteps);
  EXPECT_EQ(history.seconds(), 0.5 * kSteps);
}

}  // namespace
}  // namespace castor::gpt
