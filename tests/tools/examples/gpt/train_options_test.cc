// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/train_options.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor::gpt {
namespace {

using testing::HasSubstr;

TEST(TrainOptionsTest, TheDefaultsHaveAMeaning) {
  EXPECT_THAT(Validate(TrainOptions()), IsOk());
}

TEST(TrainOptionsTest, RefusesWhatHasNone) {
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

TEST(TrainOptionsTest, RoomForEverythingHoldsAllStatesTwice) {
  TrainOptions options;
  const Bytes states = Bytes(16 * GptParams(options.model).elements());
  EXPECT_GT(RoomForEverything(options), 2 * states);
}

TEST(TrainOptionsTest, KnowsAboutWhatTheTrainerItselfTakes) {
  TrainOptions options;
  const double activations = TrainerBytes(options);
  EXPECT_GT(activations, 140e6);
  EXPECT_LT(activations, 200e6);
  options.ranks = 2;
  EXPECT_EQ(TrainerBytes(options), 2 * activations);
}

TEST(TrainOptionsTest, RefusesWhatTheMachineCannotHold) {
  EXPECT_THAT(CheckMemory(1e6), IsOk());
  EXPECT_THAT(CheckMemory(1e18),
              StatusIs(ErrorCode::kUnavailable, HasSubstr("are available")));
}

}  // namespace
}  // namespace castor::gpt
