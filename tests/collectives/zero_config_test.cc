// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_config.h"

#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/plan.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;

TEST(ZeroConfigTest, NothingIsEveryDefault) {
  const Result<ZeroOptions> read = ParseZeroConfig("{}");
  ASSERT_THAT(read, IsOk());
  const ZeroOptions defaults;
  EXPECT_EQ(read->stage, defaults.stage);
  EXPECT_EQ(read->prefetch_depth, defaults.prefetch_depth);
  EXPECT_EQ(read->min_chunk, defaults.min_chunk);
  EXPECT_FALSE(read->chunk_size.has_value());
  EXPECT_EQ(read->optimizer.kind, defaults.optimizer.kind);
  EXPECT_TRUE(read->groups.empty());
}

TEST(ZeroConfigTest, EveryKeyIsTaken) {
  const Result<ZeroOptions> read = ParseZeroConfig(R"({
    "schema": "castor.config/1", "stage": 2, "clip_norm": 0.5,
    "prefetch_depth": 0, "policy": "planned", "grad_mode": "fp32",
    "accumulation_order": "last",
    "device_budget_bytes": 1048576, "host_budget_bytes": 2097152,
    "nvme": [{"directory": "/a"}, {"directory": "/b", "size_bytes": 4096}],
    "chunk": {"bytes": 8192, "min_bytes": 1, "max_bytes": 2,
              "align_elements": 128},
    "optimizer": {"kind": "lion", "beta1": 0.8, "beta2": 0.98, "eps": 1e-6,
                  "weight_decay": 1, "momentum": 0.5, "dampening": 0.1,
                  "nesterov": true, "moment_dtype": "BF16",
                  "stochastic_rounding": false, "seed": 9},
    "groups": [{"name": "norms", "lr_scale": 0.1, "weight_decay": 0},
               {"name": "rest", "beta1": 0.7, "beta2": 0.9, "eps": 1}],
    "loss_scale": {"kind": "dynamic", "initial": 1024, "growth": 4,
                   "growth_interval": 10, "backoff": 0.25, "hysteresis": 2,
                   "least": 0.5, "most": 4096}})");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->stage, 2);
  EXPECT_EQ(read->clip_norm, 0.5);
  EXPECT_EQ(read->prefetch_depth, 0);
  EXPECT_EQ(read->policy, PlanPolicy::kPlanned);
  EXPECT_EQ(read->grad_mode, GradMode::kFp32);
  EXPECT_EQ(read->accumulation, AccumulationOrder::kLast);
  EXPECT_EQ(read->device_budget, MiB(1));
  EXPECT_EQ(read->host_budget, MiB(2));
  ASSERT_EQ(read->nvme.size(), 2u);
  EXPECT_EQ(read->nvme[0].directory, "/a");
  EXPECT_FALSE(read->nvme[0].size.has_value());
  EXPECT_EQ(read->nvme[1].size, KiB(4));
  EXPECT_EQ(read->chunk_size, KiB(8));
  EXPECT_EQ(read->min_chunk, Bytes(1));
  EXPECT_EQ(read->max_chunk, Bytes(2));
  EXPECT_EQ(read->align, Elements(128));
  EXPECT_EQ(read->optimizer.kind, OptimizerKind::kLion);
  EXPECT_EQ(read->optimizer.beta1, 0.8);
  EXPECT_EQ(read->optimizer.beta2, 0.98);
  EXPECT_EQ(read->optimizer.eps, 1e-6);
  EXPECT_EQ(read->optimizer.weight_decay, 1);
  EXPECT_EQ(read->optimizer.momentum, 0.5);
  EXPECT_EQ(read->optimizer.dampening, 0.1);
  EXPECT_TRUE(read->optimizer.nesterov);
  EXPECT_EQ(read->optimizer.moment_dtype, DType::kBF16);
  EXPECT_FALSE(read->optimizer.stochastic_rounding);
  EXPECT_EQ(read->optimizer.seed, 9u);
  ASSERT_EQ(read->groups.size(), 2u);
  EXPECT_EQ(read->groups[0].name, "norms");
  EXPECT_EQ(read->groups[0].lr_scale, 0.1);
  EXPECT_EQ(read->groups[0].weight_decay, 0);
  EXPECT_FALSE(read->groups[0].beta1.has_value());
  EXPECT_EQ(read->groups[1].beta1, 0.7);
  EXPECT_EQ(read->groups[1].beta2, 0.9);
  EXPECT_EQ(read->groups[1].eps, 1);
  EXPECT_EQ(read->loss_scaling.kind, LossScalingKind::kDynamic);
  EXPECT_EQ(read->loss_scaling.initial, 1024);
  EXPECT_EQ(read->loss_scaling.growth, 4);
  EXPECT_EQ(read->loss_scaling.growth_interval, 10);
  EXPECT_EQ(read->loss_scaling.backoff, 0.25);
  EXPECT_EQ(read->loss_scaling.hysteresis, 2);
  EXPECT_EQ(read->loss_scaling.least, 0.5);
  EXPECT_EQ(read->loss_scaling.most, 4096);
}

TEST(ZeroConfigTest, AnOptimizersNumbersBeginWithThoseOfItsKind) {
  const Result<ZeroOptions> read =
      ParseZeroConfig(R"({"optimizer": {"kind": "lion", "beta1": 0.5}})");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->optimizer.beta1, 0.5);
  EXPECT_EQ(read->optimizer.beta2,
            DefaultOptimizerOptions(OptimizerKind::kLion).beta2);
}

// Gemini swallows what it does not know, clipping for one (defect D14).
TEST(ZeroConfigTest, WhatIsWrongIsNamedWithItsPlace) {
  struct Case {
    std::string text;
    std::string why;
  };
  const std::vector<Case> cases = {
      {"{\n  \"stage\": 2,\n  \"optimzer\": {}\n}",
       "unknown key \"optimzer\"; did you mean optimizer?"},
      {"{\n  \"stage\": 2,\n  \"optimzer\": {}\n}", "(line 3, column 3)"},
      {R"({"optimizer": {"beta3": 1}})",
       R"("optimizer" holds the unknown key "beta3")"},
      {R"({"optimizer": {"beta3": 1}})", "(line 1, column 16)"},
      {R"({"stage": 4})", "\"stage\" is 4 where a whole number from 0 to 3"},
      {R"({"stage": true})", "\"stage\" is true where"},
      {R"({"stage": {}})", "\"stage\" is an object where a value belongs"},
      {R"({"optimizer": 3})", "\"optimizer\" is 3 where an object belongs"},
      {R"({"nvme": {}})", "\"nvme\" is an object where an array belongs"},
      {R"({"nvme": [3]})", "where an object belongs"},
      {R"({"nvme": [{}]})", "has no \"directory\""},
      {R"({"groups": [{"lr_scale": 1}]})", "has no \"name\""},
      {R"({"groups": [[]]})", "where an object belongs"},
      {R"({"policy": "best"})", R"("best" where "auto" or "planned" belongs)"},
      {R"({"clip_norm": "1"})", "where a number belongs"},
      {R"({"device_budget_bytes": -1})", "where a whole number from 0"},
      {R"({"schema": "castor.config/2"})", "this version reads"},
      {R"({"stage": 1, "stage": 1})", "twice"},
      {"[]", "the document is an array where an object belongs"},
      {"7", "the document is 7 where an object belongs"},
      {"{\n \"a\": }", "(line 2, column 7)"},
      {"", "(line 1, column 1)"},
  };
  for (const Case& wrong : cases) {
    EXPECT_THAT(ParseZeroConfig(wrong.text),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(wrong.why)))
        << wrong.text;
  }
}

}  // namespace
}  // namespace castor
