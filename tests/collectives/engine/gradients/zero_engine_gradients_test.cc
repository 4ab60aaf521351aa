// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What gradients are kept in, and how those of micro-batches come together.

#include <vector>

#include "collectives/zero_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_rounds.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::HasSubstr;

TEST_F(ZeroEngineTest, FullAndWholeGradientsEqualPlainArraysBitByBit) {
  ToyRun run;
  run.micro_batches = 3;
  run.skipped = 0.2;
  run.tied = {5};
  ToyModel model = MakeToyModel(51, 12, 1500, DType::kBF16);
  for (size_t p = 0; p < model.params.size(); ++p) {
    if (p % 4 == 1) model.params[p].dtype = DType::kF32;
    if (p % 5 == 2) model.params[p].trainable = false;
  }
  const struct {
    GradMode mode;
    AccumulationOrder order;
  } gradients[] = {{GradMode::kFp32, AccumulationOrder::kEach},
                   {GradMode::kSeparate, AccumulationOrder::kLast},
                   {GradMode::kFp32, AccumulationOrder::kLast}};
  int combination = 0;
  for (const auto& [mode, order] : gradients) {
    for (int world : {1, 3}) {
      ZeroOptions options = Roomy(3);
      options.clip_norm = 0.05;
      options.grad_mode = mode;
      options.accumulation = order;
      const ToyResult want = TrainToyReference(model, run, world, options);
      for (int stage = 0; stage <= 3; ++stage) {
        if (combination++ % TestStride() != 0) continue;
        SCOPED_TRACE(testing::Message()
                     << "mode " << static_cast<int>(mode) << " order "
                     << static_cast<int>(order) << " world " << world
                     << " stage " << stage);
        ZeroOptions each =
            stage % 2 == 0 ? Roomy(stage) : Tight(stage, KiB(256), KiB(64));
        each.clip_norm = options.clip_norm;
        each.grad_mode = mode;
        each.accumulation = order;
        run.worker_lanes = stage;
        const ToyResult got = TrainToy(model, run, world, each);
        ExpectEqual(got, want);
        ExpectWithinBudgets(got);
      }
    }
  }
}

// They are different numbers in bf16, so one is not taken for the other.
TEST_F(ZeroEngineTest, ModesAndOrdersRoundDifferently) {
  const ToyModel model = MakeToyModel(52, 6, 1500, DType::kBF16);
  ToyRun run;
  run.micro_batches = 3;
  ZeroOptions options = Roomy(3);
  const ToyResult separate = TrainToy(model, run, 2, options);
  options.grad_mode = GradMode::kFp32;
  const ToyResult full = TrainToy(model, run, 2, options);
  options.grad_mode = GradMode::kSeparate;
  options.accumulation = AccumulationOrder::kLast;
  const ToyResult last = TrainToy(model, run, 2, options);
  EXPECT_NE(separate.weights, full.weights);
  EXPECT_NE(separate.weights, last.weights);
  // And one reduction per chunk and step, not three.
  EXPECT_EQ(last.stats.reduce_scatters * 3, separate.stats.reduce_scatters);
}

TEST_F(ZeroEngineTest, WholeGradientsAreRefusedWhereTheyDoNotFit) {
  const ToyModel model = MakeToyModel(53, 30, 1500, DType::kF32);
  ToyRun run;
  run.micro_batches = 2;
  ZeroOptions options = Tight(3, KiB(48), KiB(400));
  EXPECT_THAT(TrainToy(model, run, 2, options).status, IsOk());
  options.accumulation = AccumulationOrder::kLast;
  for (bool declares : {true, false}) {
    run.declares = declares;
    EXPECT_THAT(TrainToy(model, run, 2, options).status,
                StatusIs(ErrorCode::kInfeasible,
                         HasSubstr("raise the device budget by")));
  }
}

TEST_F(ZeroEngineTest, UpdatesBeforeTheStepChangeNoBit) {
  const ToyModel model = MakeToyModel(54, 16, 1500, DType::kBF16);
  ToyRun run;
  run.steps = 4;
  run.micro_batches = 2;
  run.skipped = 0.1;
  run.tied = {6};
  int combination = 0;
  for (int world : {1, 2}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (AccumulationOrder order :
           {AccumulationOrder::kEach, AccumulationOrder::kLast}) {
        if (order == AccumulationOrder::kLast && stage != 3) continue;
        if (combination++ % TestStride() != 0) continue;
        SCOPED_TRACE(testing::Message()
                     << "world " << world << " stage " << stage << " order "
                     << static_cast<int>(order));
        ZeroOptions options =
            stage % 2 == 0 ? Roomy(stage) : Tight(stage, KiB(128), KiB(100));
        options.accumulation = order;
        ToyRun early = run;
        early.updates_early = true;
        early.worker_lanes = stage;
        // Where gradients may wait for the flush, nothing is updated early.
        if (stage == 3) early.skipped = 0;
        const ToyResult got = TrainToy(model, early, world, options);
        ExpectEqual(got, TrainToyReference(model, early, world, options));
        ExpectWithinBudgets(got);
        EXPECT_GT(got.stats.early_updates, 0);
      }
    }
  }
}

TEST_F(OneRankEngineTest, WhatIsUpdatedEarlyIsNeitherUsedNorAbandoned) {
  Open(Roomy(3), 4);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  const auto refused =
      StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("UpdateEarly"));
  EXPECT_THAT(engine_->UpdateEarly(0.1),
              StatusIs(ErrorCode::kFailedPrecondition));
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  ASSERT_THAT(engine_->UpdateEarly(0.1), IsOk());
  Backward({3});
  EXPECT_THAT(Acquire(3), IsOk()) << "the other half of its chunk is to come";
  Backward({2});
  EXPECT_EQ(engine_->stats().early_updates, 1);
  EXPECT_THAT(Acquire(3).status(), refused);
  EXPECT_THAT(Acquire(1), IsOk());
  EXPECT_THAT(engine_->Abandon(), refused);
  EXPECT_THAT(engine_->Step(0.2).status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("0.1")));
  ASSERT_THAT(engine_->Step(0.1), IsOk());
  EXPECT_THAT(Acquire(3), IsOk());
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(OneRankEngineTest, NothingIsUpdatedEarlyWhereAllMustBeKnown) {
  ZeroOptions options = Roomy(3);
  options.clip_norm = 1;
  Open(options, 2);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  EXPECT_THAT(engine_->UpdateEarly(0.1),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("clipped")));
  ASSERT_THAT(engine_->Abandon(), IsOk());
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(ZeroEngineTest, AMicroBatchAfterTheLastCountsInTheNormToo) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const double clip_norm : {0.05, 1e6}) {
      SCOPED_TRACE(testing::Message()
                   << "stage " << stage << ", clipped to " << clip_norm);
      const ToyModel model = MakeToyModel(91, 8, 2500, DType::kF32);
      ToyRun run;
      run.micro_batches = 3;
      run.always_last = true;
      run.missing = 0.3;
      run.acquires_all = true;
      run.unused = {2};
      ZeroOptions options = Roomy(stage);
      options.clip_norm = clip_norm;
      const ToyResult got = TrainToy(model, run, 2, options);
      ExpectEqual(got, TrainToyReference(model, run, 2, options));
    }
  }
}

TEST_F(OneRankEngineTest, AMicroBatchAfterTheLastIsRefusedWhereThatWasUsed) {
  ZeroOptions options = Roomy(3);
  options.count_norm = true;
  Open(options, 2);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  Backward({0, 1});
  ASSERT_THAT(engine_->ClipGradients(1), IsOk());
  EXPECT_THAT(engine_->BeginMicroBatch(true),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("call Step")));
  ASSERT_THAT(engine_->Step(0.1), IsOk());
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(OneRankEngineTest, AWholeGradientIsTheSumSoFar) {
  ZeroOptions options = Roomy(3);
  options.accumulation = AccumulationOrder::kLast;
  Open(options, 2);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  for (int round = 0; round < 2; ++round) {
    for (int m = 0; m < 3; ++m) {
      ASSERT_THAT(engine_->BeginMicroBatch(m == 2), IsOk());
      const Result<void*> grad = engine_->Grad(ids_[0], lane_);
      ASSERT_THAT(grad, IsOk());
      EXPECT_EQ(static_cast<float*>(*grad)[7], static_cast<float>(m));
      Backward({0});
      if (m == 1) Backward({1});
    }
    if (round == 0) {
      ASSERT_THAT(engine_->Abandon(), IsOk());
      continue;
    }
    ASSERT_THAT(engine_->Step(0.1), IsOk());
  }
  EXPECT_THAT(engine_->Close(), IsOk());
}

}  // namespace
}  // namespace castor
