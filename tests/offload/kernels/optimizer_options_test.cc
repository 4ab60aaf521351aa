// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/optimizer_options.h"

#include <cmath>
#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

constexpr OptimizerKind kKinds[] = {OptimizerKind::kAdam, OptimizerKind::kAdamW,
                                    OptimizerKind::kSgd, OptimizerKind::kLion};

TEST(OptimizerOptionsTest, NamesReadBack) {
  for (OptimizerKind kind : kKinds) {
    EXPECT_EQ(ParseOptimizer(OptimizerName(kind)), kind);
  }
  EXPECT_EQ(OptimizerName(OptimizerKind::kAdamW), "adamw");
  EXPECT_EQ(ParseOptimizer("AdamW"), std::nullopt);
  EXPECT_EQ(ParseOptimizer(""), std::nullopt);
}

TEST(OptimizerOptionsTest, DefaultsAreThoseOfPyTorchAndOfLionsAuthors) {
  for (OptimizerKind kind : kKinds) {
    const OptimizerOptions options = DefaultOptimizerOptions(kind);
    EXPECT_EQ(options.kind, kind);
    EXPECT_THAT(ValidateOptimizerOptions(options), IsOk());
    EXPECT_EQ(options.weight_decay, kind == OptimizerKind::kAdamW ? 0.01 : 0);
    EXPECT_EQ(options.lr, kind == OptimizerKind::kLion ? 1e-4 : 1e-3);
    EXPECT_EQ(options.beta2, kind == OptimizerKind::kLion ? 0.99 : 0.999);
    EXPECT_EQ(options.momentum, 0);
  }
}

TEST(OptimizerOptionsTest, MomentsAreWhatTheKindKeeps) {
  EXPECT_EQ(MomentsOf({.kind = OptimizerKind::kAdam}), 2);
  EXPECT_EQ(MomentsOf({.kind = OptimizerKind::kAdamW}), 2);
  EXPECT_EQ(MomentsOf({.kind = OptimizerKind::kSgd}), 0);
  EXPECT_EQ(MomentsOf({.kind = OptimizerKind::kSgd, .momentum = 0.9}), 1);
  EXPECT_EQ(MomentsOf({.kind = OptimizerKind::kLion}), 1);
}

void ExpectRefused(OptimizerKind kind,
                   const std::function<void(OptimizerOptions&)>& change,
                   const std::string& what) {
  OptimizerOptions options = DefaultOptimizerOptions(kind);
  change(options);
  EXPECT_THAT(ValidateOptimizerOptions(options),
              StatusIs(ErrorCode::kInvalidArgument, Says(what)));
}

TEST(OptimizerOptionsTest, RefusesNumbersWithoutMeaning) {
  for (OptimizerKind kind : kKinds) {
    const std::string name(OptimizerName(kind));
    ExpectRefused(
        kind, [](auto& o) { o.weight_decay = -0.1; }, name);
    ExpectRefused(
        kind, [](auto& o) { o.weight_decay = NAN; }, "weight decay");
    ExpectRefused(
        kind, [](auto& o) { o.moment_dtype = DType::kF16; }, "F16");
    if (kind == OptimizerKind::kSgd) continue;
    ExpectRefused(
        kind, [](auto& o) { o.beta1 = 1; }, "betas");
    ExpectRefused(
        kind, [](auto& o) { o.beta2 = -0.5; }, "-0.5");
  }
  ExpectRefused(
      OptimizerKind::kAdam, [](auto& o) { o.eps = INFINITY; }, "eps");
  const OptimizerKind sgd = OptimizerKind::kSgd;
  ExpectRefused(
      sgd, [](auto& o) { o.momentum = -1; }, "momentum");
  ExpectRefused(
      sgd, [](auto& o) { o.dampening = NAN; }, "dampening");
  ExpectRefused(
      sgd, [](auto& o) { o.nesterov = true; }, "Nesterov");
}

TEST(OptimizerOptionsTest, OnlyWhatTheKindUsesIsLookedAt) {
  OptimizerOptions options = DefaultOptimizerOptions(OptimizerKind::kSgd);
  options.beta1 = 7;
  EXPECT_THAT(ValidateOptimizerOptions(options), IsOk());
  options = DefaultOptimizerOptions(OptimizerKind::kLion);
  options.eps = -1;
  options.momentum = -1;
  EXPECT_THAT(ValidateOptimizerOptions(options), IsOk());
}

}  // namespace
}  // namespace castor
