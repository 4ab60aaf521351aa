// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/resume.h"

#include <string>

#include "chunk/base/status.h"
#include "collectives/lr_schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tools/examples/gpt/train_options.h"

namespace castor::gpt {
namespace {

using testing::HasSubstr;

TrainOptions Options() {
  TrainOptions options;
  options.model.context = 32;
  options.schedule = LrShape::kCosine;
  options.warmup = 5;
  options.lr = 0.1;  // no sum of powers of two
  options.text = "a \"text\"";
  return options;
}

TEST(ResumeTest, ARunThatIsToldTheSameGoesOnWithoutANote) {
  EXPECT_THAT(ToldOtherwise(WriteTold(Options()), Options()), IsOkAndHolds(""));
}

TEST(ResumeTest, ANoteNamesWhatDiffersAndNothingElse) {
  TrainOptions now = Options();
  now.batch = 4;
  now.text = "another";
  now.engine.optimizer.beta1 = 0.8;
  EXPECT_THAT(
      ToldOtherwise(WriteTold(Options()), now),
      IsOkAndHolds(
          "it was trained with --text \"a \\\"text\\\"\" --batch 2 "
          "optimizer.beta1 0.9 and goes on with --text \"another\" --batch 4 "
          "optimizer.beta1 0.8: the steps to come are others than they would "
          "have been"));
}

TEST(ResumeTest, StepsMatterWhereTheRateFalls) {
  TrainOptions longer = Options();
  longer.steps = 60;
  EXPECT_THAT(ToldOtherwise(WriteTold(Options()), longer),
              IsOkAndHolds(HasSubstr("--steps 30 and")));
  TrainOptions constant = Options();
  constant.schedule = longer.schedule = LrShape::kConstant;
  EXPECT_THAT(ToldOtherwise(WriteTold(constant), longer), IsOkAndHolds(""));
}

// Versions before this one told it under other keys.
TEST(ResumeTest, WhatAnOlderVersionToldIsTakenWithoutANote) {
  EXPECT_THAT(
      ToldOtherwise(R"({"schema": "castor.train_gpt/1", "seed": 3, "ranks": 2,
                        "accumulate": 1, "batch": 2, "seq": 32})",
                    Options()),
      IsOkAndHolds(""));
}

TEST(ResumeTest, RefusesWhatIsNotOfThisTrainer) {
  for (const char* const text :
       {"", "{}", "[1]", R"({"schema": "castor.train_gpt/2", "seed": 1})",
        R"({"schema": "castor.train_gpt/1"})",
        R"({"schema": "castor.train_gpt/1", "seed": "one"})"}) {
    EXPECT_THAT(ToldOtherwise(text, Options()),
                StatusIs(ErrorCode::kMalformed, HasSubstr("not of this")))
        << text;
  }
}

}  // namespace
}  // namespace castor::gpt
