// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Gradients that are written over the parameters they are of.

#include <memory>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "tests/support/fakes/shuffling_executor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::HasSubstr;

class ZeroEngineReuseTest : public ZeroEngineTest {
 protected:
  // bf16 parameters, some of them frozen, and frozen ones of fp32 among them.
  static ToyModel Model(uint64_t seed) {
    ToyModel model = MakeToyModel(seed, 14, 1500, DType::kBF16);
    for (size_t p = 0; p < model.params.size(); ++p) {
      if (p % 5 == 2) model.params[p].trainable = false;
      if (p % 10 == 2) model.params[p].dtype = DType::kF32;
    }
    model.params[7].shape = {6000};  // larger than a chunk of 8 KiB
    return model;
  }

  ZeroOptions Reusing(ZeroOptions options) {
    options.grad_mode = GradMode::kReuse;
    return options;
  }
};

TEST_F(ZeroEngineReuseTest, EveryStagePlaceAndWorldEqualsPlainArraysBitByBit) {
  const ToyModel model = Model(61);
  ToyRun run;
  run.skipped = 0.15;
  run.left_open = 0.1;
  run.evaluates = [](const ToyMoment& at) {
    return at.point == ToyPoint::kForward && at.param == 3;
  };
  int combination = 0;
  for (int world : {1, 2, 3}) {
    ZeroOptions reference = Roomy(3);
    reference.clip_norm = 0.05;
    const ToyResult want = TrainToyReference(model, run, world, reference);
    for (int stage = 0; stage <= 3; ++stage) {
      for (Bytes device : {KiB(112), KiB(180), MiB(8)}) {
        if (combination++ % ((TestStride() + 1) / 2) != 0) continue;
        SCOPED_TRACE(testing::Message() << "world " << world << " stage "
                                        << stage << " device " << device);
        ZeroOptions options = Reusing(Tight(stage, device, KiB(200)));
        options.clip_norm = reference.clip_norm;
        options.chunk_size = stage % 2 == 0 ? KiB(4) : KiB(8);
        options.prefetch.depth = combination % 3;
        run.worker_lanes = combination % 4;
        const ToyResult got = TrainToy(model, run, world, options);
        ExpectEqual(got, want);
        ExpectWithinBudgets(got);
        if (world > 1) {
          EXPECT_EQ(got.stats.engine_copies, Bytes(0));
        }
      }
    }
  }
}

// A gradient of one rank alone updates the parameter on all ranks. A parameter
// without any gradient stays, though gradients were written over both.
TEST_F(ZeroEngineReuseTest, WhatHasNoGradientIsClearedHereOrRestored) {
  const ToyModel model = MakeToyModel(62, 10, 800, DType::kBF16);
  ToyRun run;
  run.declares = false;
  run.unused = {9};
  run.unused_by_rank = {{0, 3, 5, 7, 8}, {0, 4, 6, 7, 8}};
  const ToyResult want =
      TrainToyReference(model, run, 2, 0.05, OptimizerOptions());
  for (int stage = 0; stage <= 3; ++stage) {
    for (bool roomy : {true, false}) {
      SCOPED_TRACE(testing::Message() << "stage " << stage << " " << roomy);
      ZeroOptions options =
          Reusing(roomy ? Roomy(stage) : Tight(stage, KiB(240), MiB(1)));
      options.chunk_size = KiB(64);
      options.clip_norm = 0.05;
      const ToyResult got = TrainToy(model, run, 2, options);
      ExpectEqual(got, want);
      ASSERT_EQ(got.layout.chunks().size(), 1u);
    }
  }
}

TEST_F(ZeroEngineReuseTest, AnOverflowGivesBackWhatWasWrittenOver) {
  const ToyModel model = Model(63);
  ToyRun run;
  run.steps = 4;
  run.overflows = [](int rank, int step, int, size_t param) {
    return rank == 0 && step == 1 && param == 6;
  };
  int combination = 0;
  for (int world : {1, 2}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (Bytes device : {KiB(112), KiB(200), MiB(8)}) {
        if (combination++ % ((TestStride() + 1) / 2) != 0) continue;
        SCOPED_TRACE(testing::Message() << "world " << world << " stage "
                                        << stage << " device " << device);
        ZeroOptions options = Reusing(Tight(stage, device, KiB(200)));
        options.loss_scaling.kind = LossScalingKind::kDynamic;
        options.loss_scaling.initial = 1024;
        const ToyResult got = TrainToy(model, run, world, options);
        ASSERT_THAT(got.status, IsOk());
        EXPECT_FALSE(got.stepped[1].applied);
        EXPECT_TRUE(got.stepped[2].applied);
        options.grad_mode = GradMode::kSeparate;
        ExpectEqual(got, TrainToy(model, run, world, options));
      }
    }
  }
}

TEST_F(ZeroEngineReuseTest, AnAbandonedStepGivesBackWhatWasWrittenOver) {
  const ToyModel model = Model(64);
  ToyRun run;
  run.steps = 2;
  int combination = 0;
  for (int world : {1, 2}) {
    const ToyResult want =
        TrainToyReference(model, run, world, 0, OptimizerOptions());
    for (int stage = 0; stage <= 3; ++stage) {
      for (ToyPoint point : {ToyPoint::kOpened, ToyPoint::kEnd}) {
        for (Bytes device : {KiB(112), KiB(200), MiB(8)}) {
          if (combination++ % TestStride() != 0) continue;
          SCOPED_TRACE(testing::Message()
                       << "world " << world << " stage " << stage << " point "
                       << static_cast<int>(point) << " device " << device);
          ToyRun abandoning = run;
          abandoning.worker_lanes = combination % 3;
          abandoning.abandons = [&](const ToyMoment& at) {
            return at.attempt == 0 && at.step == 1 && at.point == point &&
                   (point == ToyPoint::kEnd || at.param == 5);
          };
          ExpectEqual(TrainToy(model, abandoning, world,
                               Reusing(Tight(stage, device, KiB(200)))),
                      want);
        }
      }
    }
  }
}

TEST_F(ZeroEngineReuseTest, UpdatesBeforeTheStepChangeNoBit) {
  const ToyModel model = MakeToyModel(65, 12, 1500, DType::kBF16);
  ToyRun run;
  run.updates_early = true;
  for (int world : {1, 2}) {
    const ToyResult want =
        TrainToyReference(model, run, world, 0, OptimizerOptions());
    for (int stage : {0, 2, 3}) {
      SCOPED_TRACE(testing::Message()
                   << "world " << world << " stage " << stage);
      run.worker_lanes = stage;
      const ToyResult got = TrainToy(
          model, run, world,
          Reusing(stage == 3 ? Tight(3, KiB(64), KiB(100)) : Roomy(stage)));
      ExpectEqual(got, want);
      EXPECT_GT(got.stats.early_updates, 0);
    }
  }
}

// Whatever order lanes run in, nobody reads what is being written over.
TEST_F(ZeroEngineReuseTest, NoOrderOfWorkChangesABit) {
  const ToyModel model = MakeToyModel(66, 8, 3000, DType::kBF16);
  ToyRun run;
  run.worker_lanes = 3;
  const ToyResult want =
      TrainToyReference(model, run, 2, 0.05, OptimizerOptions());
  const auto orders = static_cast<uint64_t>(TestRounds(16));
  for (uint64_t seed = 1; seed <= orders; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ShufflingExecutor executor(seed);
    ZeroOptions options = Reusing(Roomy(static_cast<int>(seed % 4)));
    if (seed % 3 == 0) {
      options.device_budget = KiB(72);
      options.nvme = {{nvme_.path(), std::nullopt}};
    }
    options.executor = &executor;
    options.clip_norm = 0.05;
    ExpectEqual(TrainToy(model, run, 2, options), want);
  }
}

// What it is for: the least device that serves is smaller by the gradient's
// slot, and where homes are on the device nothing is gathered at all.
TEST_F(ZeroEngineReuseTest, TakesNoSlotForGradients) {
  const ToyModel model = MakeToyModel(67, 16, 1500, DType::kBF16);
  ToyRun run;
  run.steps = 2;
  const auto least = [&](GradMode mode) {
    ZeroOptions options = Tight(3, KiB(4), MiB(4));
    options.grad_mode = mode;
    Status status;
    do {
      status = TrainToy(model, run, 2, options).status;
    } while (RaiseAsAsked(status, options));
    EXPECT_THAT(status, IsOk());
    return options.device_budget;
  };
  // Two parameters are held going forward; one and its gradient going back,
  // beside what is not complete yet.
  const Bytes separate = least(GradMode::kSeparate);
  const Bytes reuse = least(GradMode::kReuse);
  EXPECT_LE(reuse, separate);

  ToyRun one = run;
  one.declares = true;
  const ToyResult whole = TrainToy(model, one, 2, Reusing(Roomy(2)));
  ASSERT_THAT(whole.status, IsOk());
  EXPECT_EQ(whole.stats.gathered_slots, 0);
  EXPECT_GT(TrainToy(model, one, 2, Roomy(2)).stats.gathered_slots, 0);
}

TEST_F(ZeroEngineReuseTest, RefusesWhatItCannotServe) {
  const ToyModel full = MakeToyModel(68, 3, 500, DType::kF32);
  EXPECT_THAT(
      TrainToy(full, ToyRun(), 1, Reusing(Roomy(3))).status,
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("has no master")));
  const ToyModel model = MakeToyModel(68, 3, 500, DType::kBF16);
  ZeroOptions options = Reusing(Roomy(3));
  options.accumulation = AccumulationOrder::kLast;
  EXPECT_THAT(
      TrainToy(model, ToyRun(), 1, options).status,
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("one micro-batch")));
  ToyRun twice;
  twice.micro_batches = 2;
  EXPECT_THAT(
      TrainToy(model, twice, 1, Reusing(Roomy(3))).status,
      StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("make it the last")));
  // Used at both ends of the model.
  ToyRun tied;
  tied.tied = {0};
  EXPECT_THAT(TrainToy(model, tied, 1, Reusing(Roomy(3))).status,
              StatusIs(ErrorCode::kFailedPrecondition,
                       HasSubstr("is where the parameter was")));
}

// The same wherever the parameter is: gathered, or used at home.
TEST_F(OneRankEngineTest, AParameterIsNotUsedOnceItsGradientIsInItsPlace) {
  for (const Bytes device : {KiB(24), MiB(8)}) {
    SCOPED_TRACE(testing::Message() << "device " << device);
    InProcessOptions in_process;
    in_process.executor = &pool_;
    world_ = MakeInProcessWorld(in_process);
    ZeroOptions options = Tight(3, device, MiB(1));
    options.grad_mode = GradMode::kReuse;
    options.chunk_size = KiB(4);
    Result<std::unique_ptr<ZeroEngine>> made =
        ZeroEngine::Create(options, world_[0].get());
    ASSERT_THAT(made, IsOk());
    engine_ = *std::move(made);
    ids_.clear();
    for (int p = 0; p < 4; ++p) {
      ids_.push_back(
          *engine_->Register({"p" + std::to_string(p), {1024}, DType::kBF16},
                             [](int64_t begin, int64_t end, float* out) {
                               std::fill(out, out + (end - begin), 2.0f);
                             }));
    }
    ASSERT_THAT(engine_->Seal({}), IsOk());
    const auto refused =
        StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("gradient of p1"));
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    EXPECT_THAT(engine_->Evaluate(), IsOk());
    {
      Result<ParamLease> lease = Acquire(1);
      ASSERT_THAT(lease, IsOk());
      EXPECT_THAT(engine_->Grad(ids_[1], lane_).status(),
                  StatusIs(ErrorCode::kFailedPrecondition,
                           HasSubstr("release it before Grad")));
      // Its neighbour's is not in the way.
      EXPECT_THAT(engine_->Grad(ids_[0], lane_), IsOk());
      EXPECT_EQ(lease->bf16(0)[5], 0x4000);
    }
    const Result<void*> grad = engine_->Grad(ids_[1], lane_);
    ASSERT_THAT(grad, IsOk());
    EXPECT_EQ(static_cast<uint16_t*>(*grad)[5], 0) << "zero at the first call";
    EXPECT_THAT(Acquire(1).status(), refused);
    EXPECT_THAT(Acquire(2), IsOk());
    EXPECT_THAT(engine_->Evaluate().status(),
                StatusIs(ErrorCode::kFailedPrecondition,
                         HasSubstr("nothing is evaluated")));
    ASSERT_THAT(engine_->GradReady(ids_[1], lane_), IsOk());
    ASSERT_THAT(engine_->GradReady(ids_[0], lane_), IsOk());
    EXPECT_THAT(Acquire(1).status(), refused) << "after it was reduced too";
    // Masters answer for it meanwhile.
    std::vector<float> values(1024);
    ASSERT_THAT(engine_->ReadParam(ids_[1], values), IsOk());
    EXPECT_EQ(values[5], 2.0f);
    ASSERT_THAT(engine_->Abandon(), IsOk());
    {
      const Result<ParamLease> again = Acquire(1);
      ASSERT_THAT(again, IsOk());
      EXPECT_EQ(again->bf16(0)[5], 0x4000);
    }
    ASSERT_THAT(engine_->Close(), IsOk());
    engine_.reset();
  }
}

}  // namespace
}  // namespace castor
