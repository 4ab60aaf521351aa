// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/load_sources.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;

SavedParam Saved(const std::string& name, DType dtype, bool trainable = true) {
  SavedParam param{name, dtype, {4, 100}, trainable, 20, {}};
  param.states.push_back({StateKind::kParam, dtype});
  if (!trainable) return param;
  if (dtype != DType::kF32) {
    param.states.push_back({StateKind::kMaster, DType::kF32});
  }
  param.states.push_back({StateKind::kExpAvg, DType::kF32});
  return param;
}

// A parameter of the model, with states as Saved has them.
ParamWithStates Wanted(const std::string& name, DType dtype) {
  ParamWithStates param{{name, {4, 100}, dtype}, {}};
  for (const SavedState& state : Saved(name, dtype).states) {
    param.states.push_back({state.state, state.dtype});
  }
  return param;
}

CheckpointManifest Holding(std::vector<SavedParam> params) {
  CheckpointManifest manifest;
  manifest.params = std::move(params);
  return manifest;
}

LoadOptions Converting() {
  LoadOptions options;
  options.convert = true;
  return options;
}

LoadOptions WeightsOnly() {
  LoadOptions options;
  options.optimizer_states = false;
  return options;
}

size_t At(StateKind kind) { return static_cast<size_t>(kind); }

TEST(LoadSourcesTest, FindsParametersByNameInAnyOrder) {
  const CheckpointManifest manifest =
      Holding({Saved("a", DType::kBF16), Saved("b", DType::kF32)});
  const Result<LoadSources> found = FindLoadSources(
      manifest,
      std::vector{Wanted("b", DType::kF32), Wanted("a", DType::kBF16)}, {});
  ASSERT_THAT(found, IsOk());
  EXPECT_THAT(found->params, ElementsAre(1, 0));
  const auto& of_a = found->states[1];
  for (const StateKind kind :
       {StateKind::kParam, StateKind::kMaster, StateKind::kExpAvg}) {
    EXPECT_EQ(of_a[At(kind)].param, 0u);
    EXPECT_EQ(of_a[At(kind)].state, manifest.params[0].Find(kind));
  }
  EXPECT_EQ(found->states[0][At(StateKind::kMaster)].state, nullptr);
  EXPECT_EQ(of_a[At(StateKind::kGrad)].state, nullptr);
}

TEST(LoadSourcesTest, NamesTheFirstParameterThatOnlyOneOfThemHas) {
  const CheckpointManifest manifest =
      Holding({Saved("weights", DType::kF32), Saved("other", DType::kF32)});
  EXPECT_THAT(
      FindLoadSources(manifest, std::vector{Wanted("weight", DType::kF32)}, {}),
      StatusIs(ErrorCode::kInvalidArgument,
               Says("parameter \"weight\" is not in the checkpoint, "
                    "which has 2",
                    "nearest of them \"weights\"")));
  EXPECT_THAT(
      FindLoadSources(manifest, std::vector{Wanted("other", DType::kF32)}, {}),
      StatusIs(ErrorCode::kInvalidArgument,
               Says("the checkpoint's parameter \"weights\" is not one of "
                    "the model's 1")));
}

TEST(LoadSourcesTest, RefusesAnotherShape) {
  ParamWithStates wanted = Wanted("w", DType::kF32);
  wanted.spec.shape = {100, 4};
  EXPECT_THAT(
      FindLoadSources(Holding({Saved("w", DType::kF32)}), std::vector{wanted},
                      Converting()),
      StatusIs(ErrorCode::kInvalidArgument,
               Says("has shape [4, 100] in the checkpoint and [100, 4]")));
}

TEST(LoadSourcesTest, ConvertsOnlyWhenTold) {
  const CheckpointManifest manifest = Holding({Saved("w", DType::kBF16)});
  const std::vector<ParamWithStates> params = {Wanted("w", DType::kF32)};
  EXPECT_THAT(FindLoadSources(manifest, params, {}),
              StatusIs(ErrorCode::kInvalidArgument,
                       Says("load it with convert = true")));
  const Result<LoadSources> found =
      FindLoadSources(manifest, params, Converting());
  ASSERT_THAT(found, IsOk());
  // As exact as there is.
  EXPECT_EQ(found->states[0][At(StateKind::kParam)].state,
            manifest.params[0].Find(StateKind::kMaster));
}

TEST(LoadSourcesTest, MakesMastersFromWeightsWhereThereAreNone) {
  const CheckpointManifest manifest =
      Holding({Saved("w", DType::kBF16, /*trainable=*/false)});
  const std::vector<ParamWithStates> params = {Wanted("w", DType::kBF16)};
  EXPECT_THAT(FindLoadSources(manifest, params, {}),
              StatusIs(ErrorCode::kInvalidArgument,
                       Says("has no master in the checkpoint, where it "
                            "was frozen")));
  const Result<LoadSources> found =
      FindLoadSources(manifest, params, WeightsOnly());
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->states[0][At(StateKind::kMaster)].state,
            &manifest.params[0].states[0]);
  // They begin with zeros.
  EXPECT_EQ(found->states[0][At(StateKind::kExpAvg)].state, nullptr);
}

TEST(LoadSourcesTest, MakesNothingFromWholeNumbers) {
  const CheckpointManifest manifest =
      Holding({Saved("w", DType::kI32, /*trainable=*/false)});
  ParamWithStates wanted{{"w", {4, 100}, DType::kF32, /*trainable=*/false},
                         {{StateKind::kParam, DType::kF32}}};
  EXPECT_THAT(FindLoadSources(manifest, std::vector{wanted}, Converting()),
              StatusIs(ErrorCode::kInvalidArgument,
                       Says("is I32 in the checkpoint, which nothing here is "
                            "made from")));
}

TEST(LoadSourcesTest, ReadsNothingOfAParameterWithoutElements) {
  SavedParam saved = Saved("w", DType::kF32, /*trainable=*/false);
  saved.shape = {0, 4};
  ParamWithStates wanted{{"w", {0, 4}, DType::kF32},
                         {{StateKind::kParam, DType::kF32}}};
  const CheckpointManifest manifest = Holding({saved});
  const Result<LoadSources> found =
      FindLoadSources(manifest, std::vector{wanted}, {});
  ASSERT_THAT(found, IsOk());
  EXPECT_THAT(found->params, ElementsAre(0));
  EXPECT_EQ(found->states[0][At(StateKind::kParam)].state, nullptr);
}

}  // namespace
}  // namespace castor
