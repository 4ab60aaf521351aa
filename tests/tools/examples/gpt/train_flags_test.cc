// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/train_flags.h"

#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "placement/plan.h"
#include "tests/support/status_matchers.h"

namespace castor::gpt {
namespace {

using testing::HasSubstr;

Result<TrainOptions> Parsed(const std::vector<std::string>& args) {
  CommandLine line("train_gpt", "Trains.");
  TrainFlags flags;
  DeclareTrainFlags(line.app(), flags);
  CASTOR_ASSIGN_OR_RETURN(const ParseOutcome outcome,
                          ParseFlags(line.app(), args));
  EXPECT_EQ(outcome, ParseOutcome::kRun);
  return OptionsOf(flags);
}

TEST(TrainFlagsTest, DefaultsAreThoseOfTheOptions) {
  const Result<TrainOptions> options = Parsed({});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->model.layers, 9);
  EXPECT_EQ(options->dtype, DType::kF32);
  EXPECT_EQ(options->stage, 3);
  EXPECT_EQ(options->prefetch_depth, 3);
  EXPECT_EQ(options->policy, PlanPolicy::kAuto);
  EXPECT_FALSE(options->machine.has_value());
}

TEST(TrainFlagsTest, FlagsReachTheOptions) {
  const Result<TrainOptions> options =
      Parsed({"--layers", "2", "--dtype", "bf16", "--device-budget", "3MiB",
              "--no-prefetch", "--policy", "planned", "--clip", "0.5"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->model.layers, 2);
  EXPECT_EQ(options->dtype, DType::kBF16);
  EXPECT_EQ(options->device_budget, MiB(3));
  EXPECT_EQ(options->prefetch_depth, 0);
  EXPECT_EQ(options->policy, PlanPolicy::kPlanned);
  EXPECT_EQ(options->clip_norm, 0.5);
}

TEST(TrainFlagsTest, RefusesWhatContradictsItselfOrIsUnknown) {
  EXPECT_THAT(Parsed({"--prefetch", "2", "--no-prefetch"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("contradict")));
  EXPECT_THAT(Parsed({"--policy", "lru"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("planned")));
  EXPECT_THAT(Parsed({"--machine", "/nonexistent/machine.json"}),
              testing::Not(IsOk()));
}

}  // namespace
}  // namespace castor::gpt
