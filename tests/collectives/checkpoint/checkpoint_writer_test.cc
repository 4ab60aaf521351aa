// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_writer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/files/tensor_digest.h"
#include "collectives/checkpoint/load_sources.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kCount = 100;

// A trained parameter and a frozen one.
std::vector<ParamWithStates> Params() {
  return {
      {{"w", {kCount}, DType::kF32},
       {{StateKind::kParam, DType::kF32}, {OptimizerState(0), DType::kF32}}},
      {{"s", {}, DType::kF32, /*trainable=*/false},
       {{StateKind::kParam, DType::kF32}}}};
}

class CheckpointWriterTest : public testing::Test {
 protected:
  CheckpointWriterTest() { std::iota(values_.begin(), values_.end(), 1.0F); }

  CheckpointWriter Planned() {
    return *CheckpointWriter::Plan(dir_.path().string(), 20, Params(),
                                   StateNames(), MiB(1));
  }
  Status Write(CheckpointWriter& writer, size_t param, StateKind state,
               int64_t begin, int64_t count) {
    return writer.Write(
        param, state, DType::kF32, begin, count,
        reinterpret_cast<const std::byte*>(values_.data() + begin));
  }

  TempDir dir_;
  std::array<float, kCount> values_ = {};
};

TEST_F(CheckpointWriterTest, TwoWritersMakeOneCheckpoint) {
  CheckpointWriter first = Planned();
  ASSERT_THAT(first.CreateFiles(), IsOk());
  CheckpointWriter second = Planned();
  ASSERT_THAT(Write(first, 0, StateKind::kParam, 0, 64), IsOk());
  ASSERT_THAT(Write(second, 0, StateKind::kParam, 64, 36), IsOk());
  ASSERT_THAT(Write(second, 0, OptimizerState(0), 0, kCount), IsOk());
  ASSERT_THAT(Write(second, 1, StateKind::kParam, 0, 1), IsOk());
  ASSERT_THAT(first.Sync(), IsOk());
  ASSERT_THAT(second.Sync(), IsOk());
  for (size_t i = 0; i < first.digests().size(); ++i) {
    first.digests()[i] += second.digests()[i];
  }
  CheckpointManifest manifest;
  manifest.step = 20;
  manifest.optimizer = "adamw";
  first.Describe(std::array<int64_t, 2>{20, 0}, "here", &manifest);
  ASSERT_OK_AND_ASSIGN(const std::string path, first.Commit(manifest, "here"));
  EXPECT_EQ(path, first.path());
  EXPECT_EQ(path, dir_.File("step-00000020"));

  ASSERT_OK_AND_ASSIGN(const CheckpointReader reader,
                       CheckpointReader::Open(path));
  EXPECT_THAT(reader.ReadTrainer(), IsOkAndHolds("here"));
  const std::vector<SavedParam>& params = reader.manifest().params;
  ASSERT_THAT(params, SizeIs(2));
  EXPECT_EQ(params[0].steps, 20);
  EXPECT_FALSE(params[1].trainable);
  for (const SavedState& state : params[0].states) {
    std::array<float, kCount> read = {};
    ASSERT_THAT(reader.Read(0, state, 0, kCount, read.data()), IsOk());
    EXPECT_EQ(read, values_);
    EXPECT_EQ(state.digest,
              DigestOfElements(values_.data(), DType::kF32, 0, kCount));
  }
}

TEST_F(CheckpointWriterTest, WhatIsNotCommittedGoes) {
  {
    CheckpointWriter writer = Planned();
    ASSERT_THAT(writer.CreateFiles(), IsOk());
    ASSERT_THAT(Write(writer, 0, StateKind::kParam, 0, kCount), IsOk());
    EXPECT_TRUE(std::filesystem::exists(DraftPath(dir_.path().string(), 20)));
  }
  EXPECT_FALSE(std::filesystem::exists(DraftPath(dir_.path().string(), 20)));
  ASSERT_OK_AND_ASSIGN(const auto found, ListCheckpoints(dir_.path().string()));
  EXPECT_THAT(found, IsEmpty());
}

TEST_F(CheckpointWriterTest, WritesOnlyWhereFilesAreMade) {
  CheckpointWriter writer = Planned();
  EXPECT_THAT(Write(writer, 0, StateKind::kParam, 0, kCount),
              StatusIs(ErrorCode::kIoError));
}

SavedParam Saved(const std::string& name, DType dtype, bool trainable = true) {
  SavedParam param{name, dtype, {4, 100}, trainable, 20, {}};
  param.states.push_back({"param", dtype});
  if (!trainable) return param;
  if (dtype != DType::kF32) {
    param.states.push_back({"master", DType::kF32});
  }
  param.states.push_back({"exp_avg", DType::kF32});
  return param;
}

// A parameter of the model, with states as Saved has them.
ParamWithStates Wanted(const std::string& name, DType dtype) {
  ParamWithStates param{{name, {4, 100}, dtype}, {}};
  for (const SavedState& state : Saved(name, dtype).states) {
    param.states.push_back({*StateNames().Find(state.state), state.dtype});
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
  ASSERT_OK_AND_ASSIGN(const LoadSources found,
                       FindLoadSources(manifest,
                                       std::vector{Wanted("b", DType::kF32),
                                                   Wanted("a", DType::kBF16)},
                                       StateNames(), {}));
  EXPECT_THAT(found.params, ElementsAre(1, 0));
  const auto& of_a = found.states[1];
  for (const StateKind kind :
       {StateKind::kParam, StateKind::kMaster, OptimizerState(0)}) {
    EXPECT_EQ(of_a[At(kind)].param, 0u);
    EXPECT_EQ(of_a[At(kind)].state,
              manifest.params[0].Find(StateNames().of(kind)));
  }
  EXPECT_EQ(found.states[0][At(StateKind::kMaster)].state, nullptr);
  EXPECT_EQ(of_a[At(StateKind::kGrad)].state, nullptr);
}

TEST(LoadSourcesTest, WhatWasFrozenBeginsWithoutMomentsWhereAsked) {
  const CheckpointManifest manifest =
      Holding({Saved("a", DType::kBF16, /*trainable=*/false),
               Saved("b", DType::kBF16)});
  const std::vector<ParamWithStates> wanted = {Wanted("a", DType::kBF16),
                                               Wanted("b", DType::kBF16)};
  EXPECT_THAT(FindLoadSources(manifest, wanted, StateNames(), {}),
              StatusIs(ErrorCode::kInvalidArgument, Says("it was frozen")));
  LoadOptions options;
  options.begin_missing = true;
  ASSERT_OK_AND_ASSIGN(
      const LoadSources found,
      FindLoadSources(manifest, wanted, StateNames(), options));
  const auto& a = found.states[0];
  const auto& b = found.states[1];
  EXPECT_EQ(a[At(StateKind::kMaster)].state, manifest.params[0].Find("param"));
  EXPECT_EQ(a[At(OptimizerState(0))].state, nullptr);
  // What there is comes back.
  EXPECT_EQ(b[At(StateKind::kMaster)].state, manifest.params[1].Find("master"));
  EXPECT_EQ(b[At(OptimizerState(0))].state, manifest.params[1].Find("exp_avg"));
}

TEST(LoadSourcesTest, WhatWasTrainedIsNotFrozenInSilence) {
  const CheckpointManifest manifest = Holding({Saved("a", DType::kF32)});
  const std::vector<ParamWithStates> wanted = {
      {{"a", {4, 100}, DType::kF32, /*trainable=*/false},
       {{StateKind::kParam, DType::kF32}}}};
  EXPECT_THAT(FindLoadSources(manifest, wanted, StateNames(), {}),
              StatusIs(ErrorCode::kInvalidArgument, Says("is frozen now")));
  EXPECT_THAT(FindLoadSources(manifest, wanted, StateNames(), WeightsOnly()),
              IsOk());
}

TEST(LoadSourcesTest, NamesTheFirstParameterThatOnlyOneOfThemHas) {
  const CheckpointManifest manifest =
      Holding({Saved("weights", DType::kF32), Saved("other", DType::kF32)});
  EXPECT_THAT(
      FindLoadSources(manifest, std::vector{Wanted("weight", DType::kF32)},
                      StateNames(), {}),
      StatusIs(ErrorCode::kInvalidArgument,
               Says("parameter \"weight\" is not in the checkpoint, "
                    "which has 2",
                    "nearest of them \"weights\"")));
  EXPECT_THAT(
      FindLoadSources(manifest, std::vector{Wanted("other", DType::kF32)},
                      StateNames(), {}),
      StatusIs(ErrorCode::kInvalidArgument,
               Says("the checkpoint's parameter \"weights\" is not one of "
                    "the model's 1")));
}

TEST(LoadSourcesTest, FindsStatesByTheOptimizersNames) {
  const CheckpointManifest manifest = Holding({Saved("w", DType::kF32)});
  const std::vector<ParamWithStates> params = {Wanted("w", DType::kF32)};
  EXPECT_THAT(
      FindLoadSources(manifest, params, StateNames({"momentum_buffer"}), {}),
      StatusIs(ErrorCode::kInvalidArgument,
               Says("parameter \"w\" has no momentum_buffer in the "
                    "checkpoint")));
  ASSERT_OK_AND_ASSIGN(
      const LoadSources found,
      FindLoadSources(manifest, params, StateNames({"exp_avg"}), {}));
  EXPECT_EQ(found.states[0][At(OptimizerState(0))].state,
            manifest.params[0].Find("exp_avg"));
}

TEST(LoadSourcesTest, RefusesAnotherShape) {
  ParamWithStates wanted = Wanted("w", DType::kF32);
  wanted.spec.shape = {100, 4};
  EXPECT_THAT(
      FindLoadSources(Holding({Saved("w", DType::kF32)}), std::vector{wanted},
                      StateNames(), Converting()),
      StatusIs(ErrorCode::kInvalidArgument,
               Says("has shape [4, 100] in the checkpoint and [100, 4]")));
}

TEST(LoadSourcesTest, ConvertsOnlyWhenTold) {
  const CheckpointManifest manifest = Holding({Saved("w", DType::kBF16)});
  const std::vector<ParamWithStates> params = {Wanted("w", DType::kF32)};
  EXPECT_THAT(FindLoadSources(manifest, params, StateNames(), {}),
              StatusIs(ErrorCode::kInvalidArgument,
                       Says("load it with convert = true")));
  ASSERT_OK_AND_ASSIGN(
      const LoadSources found,
      FindLoadSources(manifest, params, StateNames(), Converting()));
  // As exact as there is.
  EXPECT_EQ(found.states[0][At(StateKind::kParam)].state,
            manifest.params[0].Find("master"));
}

TEST(LoadSourcesTest, MakesMastersFromWeightsWhereThereAreNone) {
  const CheckpointManifest manifest =
      Holding({Saved("w", DType::kBF16, /*trainable=*/false)});
  const std::vector<ParamWithStates> params = {Wanted("w", DType::kBF16)};
  EXPECT_THAT(FindLoadSources(manifest, params, StateNames(), {}),
              StatusIs(ErrorCode::kInvalidArgument,
                       Says("has no master in the checkpoint, where it "
                            "was frozen")));
  ASSERT_OK_AND_ASSIGN(
      const LoadSources found,
      FindLoadSources(manifest, params, StateNames(), WeightsOnly()));
  EXPECT_EQ(found.states[0][At(StateKind::kMaster)].state,
            &manifest.params[0].states[0]);
  // They begin with zeros.
  EXPECT_EQ(found.states[0][At(OptimizerState(0))].state, nullptr);
}

TEST(LoadSourcesTest, MakesNothingFromWholeNumbers) {
  const CheckpointManifest manifest =
      Holding({Saved("w", DType::kI32, /*trainable=*/false)});
  ParamWithStates wanted{{"w", {4, 100}, DType::kF32, /*trainable=*/false},
                         {{StateKind::kParam, DType::kF32}}};
  EXPECT_THAT(FindLoadSources(manifest, std::vector{wanted}, StateNames(),
                              Converting()),
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
  ASSERT_OK_AND_ASSIGN(
      const LoadSources found,
      FindLoadSources(manifest, std::vector{wanted}, StateNames(), {}));
  EXPECT_THAT(found.params, ElementsAre(0));
  EXPECT_EQ(found.states[0][At(StateKind::kParam)].state, nullptr);
}

}  // namespace
}  // namespace castor
