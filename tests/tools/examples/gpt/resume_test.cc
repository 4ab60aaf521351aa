// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/resume.h"

#include <string>

#include "chunk/base/status.h"
#include "collectives/lr_schedule.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {
namespace {

using testing::HasSubstr;
using testing::Not;

TrainOptions Options() {
  TrainOptions options;
  options.model.context = 32;
  options.schedule = LrShape::kCosine;
  options.warmup = 5;
  options.lr = 0.1;  // no sum of powers of two
  return options;
}

TEST(ResumeTest, WhatARunLeavesIsReadBackAsItWas) {
  const DataPosition position = PositionOf(Options());
  ASSERT_TRUE(position.rule.has_value());
  const Result<DataPosition> read = ParsePosition(WritePosition(position));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, position);
  EXPECT_EQ(NoteOf(*read, position), "");
  EXPECT_THAT(ParsePosition("{}"), StatusIs(ErrorCode::kMalformed));
  std::string text = WritePosition(position);
  text.replace(text.find("\"warmup\":5"), 10, "\"warmup\":x");
  EXPECT_THAT(ParsePosition(text), StatusIs(ErrorCode::kMalformed));
  // What is other than it was is said, and what was not written is not.
  DataPosition other = position;
  other.heads = 7;
  other.text = "b\x1b[31m.txt";
  const std::string heads = "--heads " + std::to_string(*position.heads);
  EXPECT_THAT(NoteOf(position, other), HasSubstr("goes on with --heads 7"));
  EXPECT_THAT(NoteOf(position, other), HasSubstr("trained with " + heads));
  EXPECT_THAT(NoteOf(position, other),
              HasSubstr("goes on with --text \"b\\x1b[31m.txt\""));
  other.heads.reset();
  other.text.reset();
  EXPECT_EQ(NoteOf(other, position), "");
  // What runs left that did not write it.
  DataPosition old = position;
  old.rule.reset();
  const Result<DataPosition> old_read = ParsePosition(WritePosition(old));
  ASSERT_THAT(old_read, IsOk());
  EXPECT_FALSE(old_read->rule.has_value());
  EXPECT_EQ(NoteOf(*old_read, position), "");
}

TEST(ResumeTest, ANoteNamesWhatDiffersAndNothingElse) {
  const TrainOptions before = Options();
  TrainOptions now = before;
  now.lr = 0.2;
  now.steps = 60;
  std::string note = NoteOf(PositionOf(before), PositionOf(now));
  EXPECT_THAT(note, HasSubstr("trained with --steps 30 --lr 0.1 and goes on "
                              "with --steps 60 --lr 0.2: the updates"));
  EXPECT_THAT(note, Not(HasSubstr("sequences")));

  now = before;
  now.schedule = LrShape::kLinear;
  now.lr_floor = 0.5;
  now.warmup = 6;
  now.engine.clip_norm = 0;
  now.engine.optimizer.weight_decay = 0.25;
  now.engine.optimizer.beta1 = 0.5;
  now.engine.optimizer.beta2 = 0.75;
  note = NoteOf(PositionOf(before), PositionOf(now));
  EXPECT_THAT(note, HasSubstr("with --schedule cosine --warmup 5 "
                              "learning_rate.floor 0 --clip 1 --weight-decay "
                              "0.1 optimizer.beta1 0.9 optimizer.beta2 0.95"));
  EXPECT_THAT(note, HasSubstr("with --schedule linear --warmup 6 "
                              "learning_rate.floor 0.5 --clip 0 "
                              "--weight-decay 0.25 optimizer.beta1 0.5 "
                              "optimizer.beta2 0.75"));

  now = before;
  now.engine.optimizer.beta2 = 0.5;
  now.batch = 7;
  note = NoteOf(PositionOf(before), PositionOf(now));
  EXPECT_THAT(note, HasSubstr("other sequences than they would have; it was "
                              "trained with optimizer.beta2 0.95"));
}

// More steps of a rate that does not fall are what they would have been.
TEST(ResumeTest, StepsMatterWhereTheRateFalls) {
  TrainOptions before = Options();
  before.schedule = LrShape::kConstant;
  TrainOptions now = before;
  now.steps = 60;
  EXPECT_EQ(NoteOf(PositionOf(before), PositionOf(now)), "");
}

}  // namespace
}  // namespace castor::gpt
