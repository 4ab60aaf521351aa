// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Values and gradients of one parameter, read and written by the trainer.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/convert.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::Each;
using testing::HasSubstr;

auto NotNow(const std::string& why) {
  return StatusIs(ErrorCode::kFailedPrecondition, HasSubstr(why));
}

// Masters come and go without rounding (Gemini's pass through the parameters'
// type, defect D1).
TEST_F(ZeroEngineTest, WritingWhatWasReadChangesNoBit) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(61, 10, 1500, dtype);
    ToyRun run;
    run.steps = 4;
    const ToyResult want =
        TrainToyReference(model, run, 2, 0.05, OptimizerOptions());
    run.between_steps = [&](ZeroEngine& engine, int step) {
      for (const ParamSpec& spec : model.params) {
        CASTOR_ASSIGN_OR_RETURN(const ParamId id, engine.Find(spec.name));
        std::vector<float> values(static_cast<size_t>(toy::SizeOf(spec)));
        CASTOR_RETURN_IF_ERROR(engine.ReadParam(id, values));
        if (step == 1) {
          const std::vector<float> others(values.size(), 3.0f);
          CASTOR_RETURN_IF_ERROR(engine.WriteParam(id, others));
        }
        CASTOR_RETURN_IF_ERROR(engine.WriteParam(id, values));
      }
      return OkStatus();
    };
    for (int stage : {0, 1, 3}) {
      SCOPED_TRACE(testing::Message()
                   << DTypeName(dtype) << " stage " << stage);
      ZeroOptions options = Tight(stage, KiB(160), KiB(100));
      options.clip_norm = 0.05;
      ExpectEqual(TrainToy(model, run, 2, options), want);
    }
  }
}

// By somebody who sees the parameters' own type: elements that are equal in it
// keep their masters.
TEST_F(ZeroEngineTest, WritesInTheParametersTypeKeepMasters) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(62, 10, 1500, dtype);
    ToyRun run;
    run.steps = 4;
    const auto write_all = [&](ZeroEngine& engine, float factor) -> Status {
      std::vector<std::vector<float>> values;
      std::vector<ZeroEngine::ParamValues> written;
      for (const ParamSpec& spec : model.params) {
        CASTOR_ASSIGN_OR_RETURN(const ParamId id, engine.Find(spec.name));
        values.emplace_back(static_cast<size_t>(toy::SizeOf(spec)));
        CASTOR_RETURN_IF_ERROR(engine.ReadParam(id, values.back()));
        // As somebody sees it who has the parameter's type.
        std::vector<uint16_t> low(values.back().size());
        if (dtype == DType::kBF16) {
          ConvertFromFloat(values.back().data(), std::ssize(low), dtype,
                           low.data());
          ConvertToFloat(low.data(), dtype, std::ssize(low),
                         values.back().data());
        }
        for (float& value : values.back()) value *= factor;
        written.push_back({id, {}});
      }
      for (size_t i = 0; i < written.size(); ++i) written[i].values = values[i];
      return engine.WriteBack(written);
    };
    const auto train = [&](int world, const ZeroOptions& options,
                           float factor) {
      run.between_steps = [&, factor](ZeroEngine& engine, int) {
        return write_all(engine, factor);
      };
      return TrainToy(model, run, world, options);
    };
    // What was written as it was changes no bit.
    ToyRun untouched = run;
    untouched.between_steps = nullptr;
    for (int stage : {0, 1, 3}) {
      SCOPED_TRACE(testing::Message()
                   << DTypeName(dtype) << " stage " << stage);
      const ZeroOptions options = Tight(stage, KiB(160), KiB(100));
      ExpectEqual(train(2, options, 1.0f),
                  TrainToy(model, untouched, 2, options));
    }
    ExpectEqual(train(2, Tight(3, KiB(160), KiB(100)), 0.75f),
                train(2, Roomy(0), 0.75f));
  }
}

TEST_F(OneRankEngineTest, AWriteWithinAStepIsThereAtTheNextUse) {
  ZeroOptions options = Tight(3, KiB(64), KiB(100));
  options.own_lease_ends = true;
  Open(options, 6);
  SealOptions declared;
  declared.held = {{{ids_[0], ids_[2]}, {ids_[0], ids_[1]}}};
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  float expected = 0;
  for (int step = 0; step < 4; ++step) {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    // Held over the write, on purpose, and past it.
    const Result<ParamLease> before = Acquire(3);
    ASSERT_THAT(before, IsOk());
    expected = static_cast<float>(step + 1);
    const std::vector<float> values(1024, expected);
    const ZeroEngine::ParamValues written[] = {{ids_[3], values},
                                               {ids_[5], values}};
    const int64_t released = engine_->stats().releases;
    ASSERT_THAT(engine_->WriteBack(written), IsOk());
    EXPECT_LE(engine_->stats().releases - released, 2);  // their chunks'
    for (const int p : {3, 5}) {
      const Result<ParamLease> after = Acquire(p);
      ASSERT_THAT(after, IsOk());
      EXPECT_EQ(after->f32(0)[0], expected);
      EXPECT_EQ(after->f32(0)[1023], expected);
    }
    Backward({2, 1});
    ASSERT_THAT(engine_->Step(0.5), IsOk());
    std::vector<float> read(1024);
    ASSERT_THAT(engine_->ReadParam(ids_[3], read), IsOk());
    EXPECT_THAT(read, Each(expected));
  }
}

TEST_F(OneRankEngineTest, WhatIsWrittenIsWhatIsUsed) {
  Open(Tight(3, KiB(48), KiB(100)), 6);
  SealOptions declared;
  declared.held = {{{ids_[0], ids_[2]}, {ids_[0], ids_[1]}}};
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  const std::vector<float> values(1024, 0.25f);
  for (int step = 0; step < 3; ++step) {
    ASSERT_THAT(engine_->WriteParam(ids_[3], values), IsOk());
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    {
      const Result<ParamLease> lease = Acquire(3);
      ASSERT_THAT(lease, IsOk());
      EXPECT_EQ(lease->f32(0)[0], 0.25f);
      EXPECT_EQ(lease->f32(0)[1023], 0.25f);
      EXPECT_THAT(engine_->WriteParam(ids_[0], values), NotNow("held"));
    }
    EXPECT_THAT(engine_->WriteParam(ids_[0], values), NotNow("half done"));
    Backward({3, 2});
    ASSERT_THAT(engine_->Step(0.5), IsOk());
  }
  ExpectInitialValues(0);
  EXPECT_EQ(*engine_->Find("p4"), ids_[4]);
  EXPECT_THAT(engine_->Find("p9").status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("p9")));
  EXPECT_THAT(engine_->Close(), IsOk());
}

// Two engines, each on a thread.
class TwoRankValuesTest : public ZeroEngineTest {
 protected:
  template <typename Body>
  void OnTwoRanks(const ZeroOptions& options, Body body) {
    auto world = MakeInProcessWorld({.world = 2, .executor = &pool_});
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        Result<std::unique_ptr<ZeroEngine>> engine =
            ZeroEngine::Create(options, world[static_cast<size_t>(rank)].get());
        ASSERT_THAT(engine, IsOk());
        body(**engine, rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(TwoRankValuesTest, GradientsAreReadAsTheyAreAveraged) {
  ZeroOptions options = Tight(3, KiB(64), KiB(32));
  options.loss_scaling = {.kind = LossScalingKind::kStatic, .initial = 8};
  OnTwoRanks(options, [](ZeroEngine& engine, int rank) {
    ThreadLane lane("compute");
    std::vector<ParamId> ids;
    for (int p = 0; p < 8; ++p) {
      ids.push_back(*engine.Register(
          {"p" + std::to_string(p), {1500}, DType::kF32, true}, {}));
    }
    ASSERT_THAT(engine.Seal({}), IsOk());
    std::vector<float> read(1500, -1.0f);
    EXPECT_THAT(engine.ReadGrad(ids[0], read), NotNow("outside a step"));
    for (int m = 0; m < 2; ++m) {
      ASSERT_THAT(engine.BeginMicroBatch(m == 1), IsOk());
      for (int p : {5, 2}) {
        const ParamId id = ids[static_cast<size_t>(p)];
        const Result<void*> grad = engine.Grad(id, lane);
        ASSERT_THAT(grad, IsOk());
        // Scaled as the loss is; 1 and 3, then 2 and 4.
        const auto value =
            static_cast<float>((2 * rank + 1 + m) * engine.LossScale());
        std::fill_n(static_cast<float*>(*grad), 1500, value);
        if (m == 1) {
          EXPECT_THAT(engine.ReadGrad(id, read), NotNow("not reduced yet"));
        }
        ASSERT_THAT(engine.GradReady(id, lane), IsOk());
        ASSERT_THAT(engine.ReadGrad(id, read), IsOk());
        EXPECT_THAT(read, Each(m == 0 ? 2.0f : 2.5f));
      }
    }
    ASSERT_THAT(engine.ReadGrad(ids[0], read), IsOk());
    EXPECT_THAT(read, Each(0.0f)) << "nobody has a gradient";
    ASSERT_THAT(engine.Step(0.1), IsOk());
    EXPECT_THAT(engine.Close(), IsOk());
  });
}

// A part of a chunk was used, and more comes in another micro-batch.
TEST_F(TwoRankValuesTest, FinishedGradientsAreReadAndMayBeDropped) {
  for (const int stage : {1, 3}) {
    ZeroOptions options = Tight(stage, KiB(64), KiB(32));
    options.count_norm = true;
    OnTwoRanks(options, [](ZeroEngine& engine, int rank) {
      ThreadLane lane("compute");
      std::vector<ParamId> ids;
      for (int p = 0; p < 3; ++p) {
        ids.push_back(*engine.Register(
            {"p" + std::to_string(p), {100}, DType::kF32, true}, {}));
      }
      ASSERT_THAT(engine.Seal({}), IsOk());
      EXPECT_THAT(engine.FinishGradients(), NotNow("outside a step"));
      const auto give = [&](int p, float value) {
        const ParamId id = ids[static_cast<size_t>(p)];
        const Result<void*> grad = engine.Grad(id, lane);
        ASSERT_THAT(grad, IsOk());
        std::fill_n(static_cast<float*>(*grad), 100, value);
        ASSERT_THAT(engine.GradReady(id, lane), IsOk());
      };
      const auto expect = [&](int p, float value) {
        std::vector<float> read(100);
        ASSERT_THAT(engine.ReadGrad(ids[static_cast<size_t>(p)], read), IsOk());
        EXPECT_THAT(read, testing::Each(value)) << p;
      };
      ASSERT_THAT(engine.BeginMicroBatch(true), IsOk());
      give(2, 1 + static_cast<float>(rank));
      give(1, 4);
      std::vector<float> read(100);
      EXPECT_THAT(engine.ReadGrad(ids[1], read), NotNow("not reduced yet"));
      ASSERT_THAT(engine.FinishGradients(), IsOk());
      ASSERT_THAT(engine.FinishGradients(), IsOk());
      expect(0, 0);
      expect(1, 4);
      expect(2, 1.5f);
      // Of two micro-batches the average.
      ASSERT_THAT(engine.BeginMicroBatch(true), IsOk());
      give(2, 1);
      give(0, 8);
      ASSERT_THAT(engine.FinishGradients(), IsOk());
      expect(0, 4);
      expect(1, 2);
      expect(2, 1.25f);
      ASSERT_THAT(engine.DropGradient(ids[1]), IsOk());
      expect(1, 0);
      const Result<StepResult> step = engine.Step(0.1);
      ASSERT_THAT(step, IsOk());
      EXPECT_FLOAT_EQ(static_cast<float>(step->grad_norm),
                      std::sqrt(100 * (16 + 1.25f * 1.25f)));
      EXPECT_EQ(*engine.UpdateCount(ids[0]), 1);
      EXPECT_EQ(*engine.UpdateCount(ids[1]), 0);
      EXPECT_EQ(*engine.UpdateCount(ids[2]), 1);
      EXPECT_THAT(engine.Close(), IsOk());
    });
  }
}

// A step whose gradients are written over, and one that has them from the
// start.
TEST_F(TwoRankValuesTest, WrittenGradientsAreThoseOfNormAndUpdate) {
  ZeroOptions options = Tight(3, KiB(64), KiB(32));
  options.loss_scaling = {.kind = LossScalingKind::kStatic, .initial = 8};
  options.clip_norm = 0.5;
  constexpr int kParams = 8;
  const auto gradient = [](int p) {
    std::vector<float> values(1500);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.001f * static_cast<float>(i % 37) - 0.01f * p;
    }
    return values;
  };
  double norms[2] = {};
  uint64_t digests[2] = {};
  for (const bool writes : {false, true}) {
    OnTwoRanks(options, [&](ZeroEngine& engine, int rank) {
      ThreadLane lane("compute");
      std::vector<ParamId> ids;
      for (int p = 0; p < kParams; ++p) {
        ids.push_back(*engine.Register(
            {"p" + std::to_string(p), {1500}, DType::kF32, true}, {}));
      }
      ASSERT_THAT(engine.Seal({}), IsOk());
      EXPECT_THAT(engine.WriteGrad(ids[1], gradient(1)),
                  NotNow("write it before Step"));
      for (int m = 0; m < 2; ++m) {
        ASSERT_THAT(engine.BeginMicroBatch(m == 1), IsOk());
        for (int p = kParams - 1; p > 0; --p) {
          const ParamId id = ids[static_cast<size_t>(p)];
          const Result<void*> grad = engine.Grad(id, lane);
          ASSERT_THAT(grad, IsOk());
          EXPECT_THAT(engine.WriteGrad(id, gradient(p)),
                      NotNow("not reduced yet"));
          const std::vector<float> values = gradient(p);
          for (size_t i = 0; i < values.size(); ++i) {
            static_cast<float*>(*grad)[i] =
                8 * (writes ? static_cast<float>(rank + p) : values[i]);
          }
          ASSERT_THAT(engine.GradReady(id, lane), IsOk());
        }
      }
      if (writes) {
        std::vector<float> read(1500);
        for (int p = 1; p < kParams; ++p) {
          const ParamId id = ids[static_cast<size_t>(p)];
          ASSERT_THAT(engine.WriteGrad(id, gradient(p)), IsOk());
          ASSERT_THAT(engine.ReadGrad(id, read), IsOk());
          EXPECT_EQ(read, gradient(p));
        }
        EXPECT_THAT(engine.WriteGrad(ids[2], gradient(rank)),
                    StatusIs(ErrorCode::kInvalidArgument,
                             HasSubstr("different values")));
        EXPECT_THAT(engine.WriteGrad(ids[0], gradient(0)),
                    NotNow("has a gradient"));
      }
      const Result<StepResult> step = engine.Step(0.1);
      ASSERT_THAT(step, IsOk());
      const Result<uint64_t> digest = engine.WeightDigest();
      ASSERT_THAT(digest, IsOk());
      if (rank == 0) {
        norms[writes] = step->grad_norm;
        digests[writes] = *digest;
      }
      EXPECT_THAT(engine.Close(), IsOk());
    });
  }
  EXPECT_GT(norms[0], options.clip_norm);
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(digests[0], digests[1]);
}

TEST_F(TwoRankValuesTest, RanksMustWriteTheSame) {
  OnTwoRanks(Roomy(3), [](ZeroEngine& engine, int rank) {
    const ParamId id = *engine.Register({"p", {100}, DType::kF32, true}, {});
    ASSERT_THAT(engine.Seal({}), IsOk());
    std::vector<float> values(100, static_cast<float>(rank));
    EXPECT_THAT(engine.WriteParam(id, values),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("different")));
    ASSERT_THAT(engine.ReadParam(id, values), IsOk());
    EXPECT_THAT(values, Each(0.0f));
    EXPECT_THAT(engine.Close(), IsOk());
  });
}

TEST_F(TwoRankValuesTest, WritesThatDifferAreNamedAndNothingIsWritten) {
  OnTwoRanks(Tight(3, KiB(64), KiB(32)), [](ZeroEngine& engine, int rank) {
    std::vector<ParamId> ids;
    for (int p = 0; p < 4; ++p) {
      ids.push_back(*engine.Register(
          {"p" + std::to_string(p), {1500}, DType::kF32, true}, {}));
    }
    ASSERT_THAT(engine.Seal({}), IsOk());
    const std::vector<float> ones(1500, 1.0f);
    const std::vector<float> own(1500, static_cast<float>(rank));
    const ZeroEngine::ParamValues differ[] = {{ids[1], ones}, {ids[2], own}};
    EXPECT_THAT(engine.WriteBack(differ),
                StatusIs(ErrorCode::kInvalidArgument,
                         HasSubstr("p2 was written to with different values")));
    const std::span<const ZeroEngine::ParamValues> first(differ, 1);
    EXPECT_THAT(
        engine.WriteBack(
            rank == 0 ? first : std::span<const ZeroEngine::ParamValues>()),
        StatusIs(ErrorCode::kInvalidArgument,
                 HasSubstr("p1 was written to by some ranks only")));
    std::vector<float> read(1500, 7.0f);
    EXPECT_THAT(engine.ReadParam(ids[1], read), IsOk());
    EXPECT_THAT(read, Each(0.0f));
    EXPECT_THAT(engine.WriteBack({}), IsOk());
    EXPECT_THAT(engine.WriteBack(first), IsOk());
    EXPECT_THAT(engine.ReadParam(ids[1], read), IsOk());
    EXPECT_THAT(read, Each(1.0f));
    int64_t words[] = {rank, -rank};
    EXPECT_THAT(engine.LeastOfRanks(words), IsOk());
    EXPECT_THAT(words, testing::ElementsAre(0, -1));
  });
}

}  // namespace
}  // namespace castor
