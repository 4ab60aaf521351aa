// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Scaled losses, and steps that are skipped.

#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "collectives/in_process_communicator.h"
#include "collectives/loss_scaler.h"
#include "collectives/zero_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/convert.h"
#include "offload/lane.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::HasSubstr;

LossScaling Dynamic() {
  return {
      .kind = LossScalingKind::kDynamic, .initial = 1024, .growth_interval = 2};
}

TEST_F(ZeroEngineTest, HalfPrecisionTrainsWithAScaledLoss) {
  const ToyModel model = MakeToyModel(41, 14, 1500, DType::kF16);
  ToyRun run;
  run.micro_batches = 2;
  run.tied = {4};
  int combination = 0;
  for (double clip : {0.0, 0.02}) {
    ZeroOptions options = Roomy(3);
    options.clip_norm = clip;
    options.loss_scaling = {.kind = LossScalingKind::kStatic, .initial = 512};
    const ToyResult want = TrainToyReference(model, run, 2, options);
    for (int stage : {0, 2, 3}) {
      for (bool tight : {false, true}) {
        if (combination++ % TestStride() != 0) continue;
        SCOPED_TRACE(testing::Message() << "clip " << clip << " stage " << stage
                                        << " tight " << tight);
        ZeroOptions each =
            tight ? Tight(stage, KiB(160), KiB(100)) : Roomy(stage);
        each.clip_norm = clip;
        each.loss_scaling = options.loss_scaling;
        const ToyResult got = TrainToy(model, run, 2, each);
        ExpectEqual(got, want);
        ExpectWithinBudgets(got);
        EXPECT_EQ(got.stepped[0].loss_scale, 512);
      }
    }
  }
}

// An infinite norm clips nothing.
TEST_F(ZeroEngineTest, WithoutLossScalingClippingSkipsAStepThatOverflows) {
  const ToyModel model = MakeToyModel(45, 6, 700, DType::kF32);
  size_t hit = 0;
  while (toy::SizeOf(model.params[hit]) < 2) ++hit;
  ToyRun run;
  run.overflows = [hit](int rank, int step, int, size_t param) {
    return rank == 1 && step == 1 && param == hit;
  };
  for (const int stage : {1, 3}) {
    ZeroOptions options = Roomy(stage);
    options.clip_norm = 0.05;
    const ToyResult got = TrainToy(model, run, 2, options);
    ExpectEqual(got, TrainToyReference(model, run, 2, options));
    ASSERT_EQ(got.stepped.size(), 3u);
    EXPECT_FALSE(got.stepped[1].applied);
    EXPECT_TRUE(got.stepped[2].applied);
    EXPECT_TRUE(std::isfinite(got.weights[hit][0]));
  }
}

// A sum over ranks and micro-batches of 40,000 each is more than fp16 has, and
// their average is not.
TEST_F(ZeroEngineTest, SumsOfHalfPrecisionReachAsFarAsTheirAverage) {
  constexpr float kEach = 40'000;
  constexpr float kRounding = kEach / 1024;  // a sum's, in fp16
  constexpr int64_t kSize = 1024;
  for (const int world : {1, 2, 3}) {
    for (const int micro_batches : {1, 3}) {
      for (const int stage : {0, 2, 3}) {
        for (const bool on_host : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << world << " ranks, " << micro_batches
                       << " micro-batches, stage " << stage << ", gradients "
                       << (on_host ? "on the host" : "on the device"));
          const auto comms =
              MakeInProcessWorld({.world = world, .executor = &pool_});
          const auto train = [&](int rank) -> Status {
            ZeroOptions options = Roomy(stage);
            options.clip_norm = 1e9;
            if (on_host) {
              options.home_rules = {{.glob = "*", .tier = Tier::kHost}};
            }
            CASTOR_ASSIGN_OR_RETURN(
                const auto engine,
                ZeroEngine::Create(options,
                                   comms[static_cast<size_t>(rank)].get()));
            CASTOR_ASSIGN_OR_RETURN(
                const ParamId id,
                engine->Register({"p", {kSize}, DType::kF16}, {}));
            SealOptions declared;
            declared.micro_batches = micro_batches;
            CASTOR_RETURN_IF_ERROR(engine->Seal(declared));
            ThreadLane lane("compute");
            const std::vector<float> each(kSize, kEach);
            for (int a = 0; a < micro_batches; ++a) {
              CASTOR_RETURN_IF_ERROR(
                  engine->BeginMicroBatch(a + 1 == micro_batches));
              CASTOR_ASSIGN_OR_RETURN(void* const grad, engine->Grad(id, lane));
              ConvertFromFloat(each.data(), kSize, DType::kF16, grad);
              CASTOR_RETURN_IF_ERROR(engine->GradReady(id, lane));
            }
            std::vector<float> average(kSize);
            CASTOR_RETURN_IF_ERROR(engine->ReadGrad(id, average));
            EXPECT_THAT(average,
                        testing::Each(testing::FloatNear(kEach, kRounding)));
            CASTOR_ASSIGN_OR_RETURN(const StepResult step, engine->Step(0.1));
            EXPECT_TRUE(step.applied);
            EXPECT_NEAR(step.grad_norm, kEach * 32, kRounding * 32);
            return engine->Close();
          };
          std::vector<std::thread> ranks;
          for (int rank = 0; rank < world; ++rank) {
            ranks.emplace_back([&, rank] { EXPECT_THAT(train(rank), IsOk()); });
          }
          for (std::thread& rank : ranks) rank.join();
        }
      }
    }
  }
}

TEST_F(ZeroEngineTest, HalfPrecisionTrainsAlikeInEveryStageAndOrder) {
  const ToyModel model = MakeToyModel(44, 12, 1500, DType::kF16);
  ToyRun run;
  run.micro_batches = 3;
  run.skipped = 0.3;
  run.left_open = 0.2;
  for (const AccumulationOrder order :
       {AccumulationOrder::kEach, AccumulationOrder::kLast}) {
    for (int world : {1, 3}) {
      ZeroOptions options = Roomy(0);
      options.accumulation = order;
      options.clip_norm = 0.02;
      const ToyResult want = TrainToyReference(model, run, world, options);
      for (int stage : {0, 1, 3}) {
        SCOPED_TRACE(testing::Message() << world << " ranks, stage " << stage);
        options.stage = stage;
        options.chunk_size = stage == 3 ? KiB(4) : KiB(16);
        ExpectEqual(TrainToy(model, run, world, options), want);
      }
    }
  }
}

// Also in the host's optimizer, and also for bf16 gradients (Gemini's ignores
// the scale there, defect D2).
TEST_F(ZeroEngineTest, AScaleThatIsAPowerOfTwoChangesNoBit) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(42, 12, 1500, dtype);
    ToyRun run;
    run.steps = 5;
    for (int stage : {1, 3}) {
      SCOPED_TRACE(testing::Message()
                   << DTypeName(dtype) << " stage " << stage);
      ZeroOptions options = Tight(stage, KiB(160), KiB(100));
      options.clip_norm = 0.02;
      const ToyResult want = TrainToyReference(model, run, 2, options);
      options.loss_scaling = Dynamic();
      const ToyResult got = TrainToy(model, run, 2, options);
      ExpectEqual(got, want);
      std::vector<double> scales;
      for (const StepResult& step : got.stepped) {
        scales.push_back(step.loss_scale);
      }
      EXPECT_EQ(scales, (std::vector<double>{1024, 1024, 2048, 2048, 4096}));
    }
  }
}

// Wherever and whenever a gradient overflows, weights, moments and counts are
// as if the step had not been, on every rank (PatrickStar's are half updated,
// defect B12), with clipping and without.
TEST_F(ZeroEngineTest, AnOverflowOnOneRankSkipsTheStepOnAll) {
  ToyRun run;
  run.steps = 4;
  run.micro_batches = 2;
  int combination = 0;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(43, 10, 1200, dtype);
    for (int micro_batch : {0, 1}) {
      for (int stage : {0, 1, 3}) {
        for (double clip : {0.0, 0.05}) {
          const int number = combination++;
          if (number % TestStride() != 0) continue;
          const size_t param = number % 2 == 0 ? 1 : 9;
          SCOPED_TRACE(testing::Message()
                       << DTypeName(dtype) << " micro-batch " << micro_batch
                       << " stage " << stage << " clip " << clip
                       << " parameter " << param);
          run.overflows = [=](int rank, int step, int at, size_t p) {
            return rank == 1 && step == 1 && at == micro_batch && p == param;
          };
          ZeroOptions options =
              number % 3 == 0 ? Roomy(stage) : Tight(stage, KiB(160), KiB(100));
          options.clip_norm = clip;
          options.loss_scaling = Dynamic();
          const ToyResult got = TrainToy(model, run, 2, options);
          ExpectEqual(got, TrainToyReference(model, run, 2, options));
          ASSERT_EQ(got.stepped.size(), 4u);
          for (size_t s = 0; s < 4; ++s) {
            EXPECT_EQ(got.stepped[s].applied, s != 1);
            EXPECT_EQ(got.stepped[s].loss_scale, s < 2 ? 1024 : 512);
            EXPECT_EQ(
                got.stepped[s].not_finite,
                s == 1 ? ParamId(static_cast<int32_t>(param)) : ParamId());
          }
          EXPECT_TRUE(std::isinf(got.norms[1]));
        }
      }
    }
  }
}

TEST_F(OneRankEngineTest, TheLossScaleIsTheTrainersToSaveAndRestore) {
  ZeroOptions options = Roomy(3);
  options.loss_scaling = Dynamic();
  Open(options, 2);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  EXPECT_EQ(engine_->LossScale(), 1024);
  for (int step = 0; step < 3; ++step) {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    EXPECT_THAT(engine_->RestoreLossScale({}),
                StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("Step")));
    Backward({1, 0});
    ASSERT_THAT(engine_->Step(0.1), IsOk());
  }
  EXPECT_EQ(engine_->LossScale(), 2048);
  const LossScaleState saved = engine_->loss_scale_state();
  EXPECT_EQ(saved.clean_steps, 1);
  EXPECT_THAT(engine_->RestoreLossScale({.scale = 0.5}),
              StatusIs(ErrorCode::kInvalidArgument));
  ASSERT_THAT(engine_->RestoreLossScale({.scale = 64}), IsOk());
  EXPECT_EQ(engine_->LossScale(), 64);
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  Backward({1, 0});
  const Result<StepResult> step = engine_->Step(0.1);
  ASSERT_THAT(step, IsOk());
  EXPECT_EQ(step->loss_scale, 64);
  EXPECT_EQ(step->grad_norm, std::sqrt(2.0 * 1024.0) / 64)
      << "computed for the overflow, though nothing is clipped";
  EXPECT_EQ(step->clip_factor, 1);
  EXPECT_THAT(engine_->Close(), IsOk());
  options.loss_scaling.backoff = 2;
  EXPECT_THAT(ZeroEngine::Create(options, world_[0].get()).status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("falls")));
}

}  // namespace
}  // namespace castor
