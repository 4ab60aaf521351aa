// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/states/engine_scalars.h"

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/text/json_value.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/optimizer_options.h"
#include "tests/support/status_matchers.h"

namespace castor::internal {
namespace {

LossScaler Dynamic() {
  return LossScaler({.kind = LossScalingKind::kDynamic, .hysteresis = 2});
}

TEST(EngineScalarsTest, AScalerGoesOnWhereAnotherWas) {
  LossScaler scaler = Dynamic();
  scaler.Update(true);
  scaler.Update(false);
  LossScaler again = Dynamic();
  ASSERT_THAT(
      RestoreScaler(ScalarsOf({}, scaler, OptimizerGroups({}, {})), &again),
      IsOk());
  EXPECT_EQ(again.state(), scaler.state());
}

TEST(EngineScalarsTest, ARunThatScaledNothingSaysNothingOfIt) {
  const EngineScalars scalars =
      ScalarsOf({.seed = 7}, LossScaler({}), OptimizerGroups({}, {}));
  EXPECT_EQ(scalars, (EngineScalars{{"optimizer_seed", 7}}));
  LossScaler scaler = Dynamic();
  const LossScaleState before = scaler.state();
  EXPECT_THAT(RestoreScaler(scalars, &scaler), IsOk());
  EXPECT_EQ(scaler.state(), before);
}

TEST(EngineScalarsTest, RefusesALossScaleThatNoRunHas) {
  LossScaler scaler = Dynamic();
  EngineScalars scalars = ScalarsOf({}, scaler, OptimizerGroups({}, {}));
  scalars["loss_scale_clean_steps"] = "many";
  EXPECT_THAT(RestoreScaler(scalars, &scaler),
              StatusIs(ErrorCode::kInvalidArgument,
                       Says("its loss scale", "-1 clean steps")));
  EXPECT_EQ(scaler.state(), Dynamic().state());
}

TEST(EngineScalarsTest, RatesThatWereSaidGoOn) {
  const OptimizerGroup vectors[] = {{.name = "vectors"}};
  OptimizerGroups groups({}, vectors);
  ASSERT_THAT(groups.SetLearningRate("vectors", 0.25), IsOk());
  EngineScalars scalars = ScalarsOf({}, LossScaler({}), groups);
  OptimizerGroups again({}, vectors);
  ASSERT_THAT(RestoreRates(scalars, &again), IsOk());
  EXPECT_EQ(again.GivenRates(), groups.GivenRates());
  scalars["learning_rate.vectors"] = JsonValue(-1.0);
  EXPECT_THAT(
      RestoreRates(scalars, &again),
      StatusIs(ErrorCode::kInvalidArgument, Says("its learning_rate.vectors")));
}

TEST(EngineScalarsTest, MomentsOfAdamAndAdamWMeanTheSame) {
  CheckpointManifest manifest;
  manifest.optimizer = "adam";
  EXPECT_THAT(CheckSameMoments(manifest, {.kind = OptimizerKind::kAdamW}),
              IsOk());
  EXPECT_THAT(CheckSameMoments(manifest, {.kind = OptimizerKind::kSgd}),
              StatusIs(ErrorCode::kInvalidArgument,
                       Says("it was trained with \"adam\"")));
}

TEST(EngineScalarsTest, SeedsMatterWhereMomentsAreRoundedByChance) {
  CheckpointManifest manifest;
  OptimizerOptions optimizer;
  manifest.optimizer = OptimizerName(optimizer.kind);
  manifest.engine =
      ScalarsOf({.seed = 7}, LossScaler({}), OptimizerGroups({}, {}));
  optimizer.seed = 8;
  EXPECT_THAT(CheckSameMoments(manifest, optimizer), IsOk());
  optimizer.moment_dtype = DType::kBF16;
  optimizer.stochastic_rounding = true;
  EXPECT_THAT(CheckSameMoments(manifest, optimizer),
              StatusIs(ErrorCode::kInvalidArgument,
                       Says("with seed 7, and the engine has seed 8")));
  optimizer.seed = 7;
  EXPECT_THAT(CheckSameMoments(manifest, optimizer), IsOk());
}

}  // namespace
}  // namespace castor::internal
