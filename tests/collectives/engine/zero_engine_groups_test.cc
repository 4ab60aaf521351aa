// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Parameters with hyper-parameters of their own.

#include <string>
#include <vector>

#include "collectives/optimizer_groups.h"
#include "collectives/zero_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_rounds.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::HasSubstr;

std::vector<OptimizerGroup> Groups() {
  return {
      {.name = "plain", .weight_decay = 0.0},
      {.name = "fast", .lr_scale = 4, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3}};
}

// Neighbours are of different groups, so that a chunk has some of all.
ToyModel Grouped(ToyModel model) {
  const char* const names[] = {"", "plain", "fast"};
  for (size_t p = 0; p < model.params.size(); ++p) {
    model.groups.push_back(names[p % 3]);
  }
  return model;
}

// Counts of steps are each parameter's own (Gemini has one for a group, defect
// D18): some have no gradient in some steps. The norm is that of all groups
// together (LowLevelZero adds up the groups' norms, D16).
TEST_F(ZeroEngineTest, GroupsHaveTheirOwnNumbersWhereverTheyLie) {
  ToyRun run;
  run.skipped = 0.25;
  run.steps = 4;
  ToyRun scheduled = run;
  scheduled.rate = [](const std::string& group, int step) {
    return (group == "fast"    ? 0.1
            : group == "plain" ? 0.01
                               : 0.05) /
           (step + 1);
  };
  int combination = 0;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = Grouped(MakeToyModel(31, 16, 1500, dtype));
    for (const ToyRun& each : {run, scheduled}) {
      ZeroOptions options = Roomy(3);
      options.groups = Groups();
      options.clip_norm = 0.05;
      options.optimizer.weight_decay = 0.3;
      const ToyResult want = TrainToyReference(model, each, 2, options);
      for (int stage : {0, 1, 3}) {
        if (combination++ % TestStride() != 0) continue;
        SCOPED_TRACE(testing::Message()
                     << DTypeName(dtype) << " stage " << stage);
        ZeroOptions roomy = options;
        roomy.stage = stage;
        roomy.chunk_size = KiB(64);
        ExpectEqual(TrainToy(model, each, 2, roomy), want);
        // On the host and on drives.
        ZeroOptions tight = Tight(stage, KiB(160), KiB(100));
        tight.groups = options.groups;
        tight.clip_norm = options.clip_norm;
        tight.optimizer = options.optimizer;
        ExpectEqual(TrainToy(model, each, 2, tight), want);
      }
    }
  }
}

TEST_F(ZeroEngineTest, RanksMustAgreeOnGroupsAndTheirRates) {
  const ToyModel model = Grouped(MakeToyModel(32, 6, 300, DType::kF32));
  ToyPart one = {model, ToyRun(), Roomy(3)};
  one.options.groups = Groups();
  ToyPart other = one;
  other.options.groups[1].eps = 1e-4;
  for (const ToyResult& result : TrainToyParts({one, other})) {
    EXPECT_THAT(result.status, StatusIs(ErrorCode::kInvalidArgument,
                                        HasSubstr("options: groups.")));
  }
  other = one;
  other.model.groups[0] = "fast";
  for (const ToyResult& result : TrainToyParts({one, other})) {
    EXPECT_THAT(result.status, StatusIs(ErrorCode::kInvalidArgument,
                                        HasSubstr("different parameters")));
  }
  other = one;
  other.run.rate = [](const std::string& group, int) {
    return group == "plain" ? 0.02 : 0.05;
  };
  bool told = false;
  for (const ToyResult& result : TrainToyParts({one, other})) {
    EXPECT_FALSE(result.status.ok());
    told |=
        result.status.message().find("numbers of groups") != std::string::npos;
  }
  EXPECT_TRUE(told);
}

TEST_F(OneRankEngineTest, RefusesGroupsThatAreNone) {
  ZeroOptions options = Roomy(3);
  options.groups = Groups();
  Open(options, 2);
  EXPECT_THAT(
      engine_->Register({"lost", {4}, DType::kF32, true}, {}, "fats").status(),
      StatusIs(ErrorCode::kInvalidArgument,
               testing::AllOf(HasSubstr("parameter lost"), HasSubstr("fats"))));
  EXPECT_THAT(engine_->SetLearningRate("fats", 1),
              StatusIs(ErrorCode::kInvalidArgument));
  options.groups[0].beta1 = 2;
  EXPECT_THAT(ZeroEngine::Create(options, world_[0].get()).status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("plain")));
}

// What the suites of the engine compare with, made wrong on purpose: an
// optimizer that does nothing, a gradient that is dropped, an average that
// forgets the number of ranks. Were any of these the engine's defect, every
// comparison with plain arrays would fail as this one does.
TEST_F(ZeroEngineTest, ADefectWouldBeSeen) {
  const ToyModel model = MakeToyModel(33, 8, 500, DType::kF32);
  ToyRun run;
  run.micro_batches = 2;
  ZeroOptions options = Roomy(3);
  options.optimizer = DefaultOptimizerOptions(OptimizerKind::kSgd);
  const ToyResult got = TrainToy(model, run, 2, options);
  ExpectEqual(got, TrainToyReference(model, run, 2, options));
  ToyRun idle = run;
  idle.lr = 0;
  EXPECT_NE(TrainToyReference(model, idle, 2, options).weights, got.weights);
  ToyRun dropped = run;
  dropped.unused_by_rank = {{}, {5}};
  EXPECT_NE(TrainToyReference(model, dropped, 2, options).weights, got.weights);
  ToyRun summed = run;
  summed.lr = run.lr * 2;
  EXPECT_NE(TrainToyReference(model, summed, 2, options).weights, got.weights);
}

}  // namespace
}  // namespace castor
