// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/train_flags.h"

#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/loss_scaler.h"
#include "collectives/lr_schedule.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/static_policy.h"
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
              "--no-prefetch", "--policy", "planned", "--clip", "0.5",
              "--shard-group", "4", "--optimizer-span", "world"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->model.layers, 2);
  EXPECT_EQ(options->dtype, DType::kBF16);
  EXPECT_EQ(options->device_budget, MiB(3));
  EXPECT_EQ(options->prefetch_depth, 0);
  EXPECT_EQ(options->policy, PlanPolicy::kPlanned);
  EXPECT_EQ(options->clip_norm, 0.5);
  EXPECT_EQ(options->shard_group, 4);
  EXPECT_EQ(options->optimizer_span, OptimizerSpan::kWorld);
}

TEST(TrainFlagsTest, WhatIsDoneWithGradientsReachesTheOptions) {
  const Result<TrainOptions> options =
      Parsed({"--dtype", "f16", "--loss-scale", "dynamic", "--grad-mode",
              "fp32", "--accumulation-order", "last", "--decay", "matrices",
              "--warmup", "5", "--schedule", "cosine"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->dtype, DType::kF16);
  EXPECT_EQ(options->loss_scaling.kind, LossScalingKind::kDynamic);
  EXPECT_EQ(options->grad_mode, GradMode::kFp32);
  EXPECT_EQ(options->accumulation, AccumulationOrder::kLast);
  EXPECT_TRUE(options->decay_matrices_only);
  EXPECT_EQ(ScheduleOf(*options).shape, LrShape::kCosine);
  EXPECT_EQ(ScheduleOf(*options).warmup, 5);
  EXPECT_EQ(ScheduleOf(*options).steps, options->steps);
  EXPECT_EQ(Parsed({"--loss-scale", "512"})->loss_scaling.initial, 512);
  for (const char* scale : {"-1", "big", "2x"}) {
    EXPECT_THAT(Parsed({"--loss-scale", scale}),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("dynamic")));
  }
  EXPECT_THAT(Parsed({"--reference", "--grad-mode", "fp32"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("leave")));
  EXPECT_THAT(Parsed({"--schedule", "linear", "--warmup", "30"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("warm-up")));
}

TEST(TrainFlagsTest, LimitsAndRulesReachTheOptions) {
  EXPECT_FALSE(Parsed({})->home_limits.has_value());
  const Result<TrainOptions> options =
      Parsed({"--limit", "exp_avg@host=12MiB", "--limit", "param@device=25%",
              "--place", "nvme:wte.*", "--place", "host:*,state=grad"});
  ASSERT_THAT(options, IsOk());
  ASSERT_TRUE(options->home_limits.has_value());
  const StaticLimits& limits = *options->home_limits;
  EXPECT_EQ(limits[static_cast<size_t>(StateKind::kExpAvg)].host,
            StateLimit(MiB(12)));
  EXPECT_EQ(limits[static_cast<size_t>(StateKind::kParam)].device,
            StateLimit(0.25));
  ASSERT_EQ(options->home_rules.size(), 2u);
  EXPECT_EQ(options->home_rules[0].glob, "wte.*");
  EXPECT_EQ(options->home_rules[1].state, StateKind::kGrad);
  EXPECT_THAT(
      Parsed({"--limit", "exp_avg@hots=1MiB"}),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("did you mean host?")));
  EXPECT_THAT(Parsed({"--place", "disk:*"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--place")));
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
