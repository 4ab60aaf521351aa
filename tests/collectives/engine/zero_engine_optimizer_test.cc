// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a trainer may look at and change between gradients and their update:
// moments, counts of updates, numbers of groups, the norm.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/in_process_communicator.h"
#include "collectives/optimizer_groups.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "tests/support/status_matchers.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kParams = 6;
constexpr int64_t kElements = 1500;

auto NotNow(const std::string& why) {
  return StatusIs(ErrorCode::kFailedPrecondition, HasSubstr(why));
}

// One of two ranks, with parameters that are initialised alike.
class Rank {
 public:
  Rank(const ZeroOptions& options, Communicator* communicator, DType dtype)
      : dtype_(dtype) {
    Result<std::unique_ptr<ZeroEngine>> made =
        ZeroEngine::Create(options, communicator);
    EXPECT_THAT(made, IsOk());
    engine = *std::move(made);
    for (int p = 0; p < kParams; ++p) {
      const Result<ParamId> id = engine->Register(
          {"p" + std::to_string(p), {kElements}, dtype, p != 4},
          [p](int64_t begin, int64_t end, float* out) {
            for (int64_t i = begin; i < end; ++i) {
              out[i - begin] = 0.01f * static_cast<float>((i + p) % 19);
            }
          },
          p % 2 == 0 && !options.groups.empty() ? "even" : "");
      EXPECT_THAT(id, IsOk());
      ids.push_back(*id);
    }
    EXPECT_THAT(engine->Seal({}), IsOk());
  }

  void Gradients(int step, int micro_batches = 1) {
    for (int m = 0; m < micro_batches; ++m) {
      ASSERT_THAT(engine->BeginMicroBatch(m + 1 == micro_batches), IsOk());
      for (int p = kParams; p-- > 0;) {
        if (p == 4) continue;
        const Result<void*> grad = engine->Grad(ids[Index(p)], lane);
        ASSERT_THAT(grad, IsOk());
        for (int64_t i = 0; i < kElements; ++i) {
          const auto value =
              static_cast<float>((i * (p + 1) + step + engine->rank()) % 7 - 3);
          if (dtype_ == DType::kF32) {
            static_cast<float*>(*grad)[i] += value;
          } else {  // small whole numbers, whose bits in bf16 are those of fp32
            uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof(bits));
            static_cast<uint16_t*>(*grad)[i] =
                static_cast<uint16_t>(bits >> 16);
          }
        }
        ASSERT_THAT(engine->GradReady(ids[Index(p)], lane), IsOk());
      }
    }
  }
  void Steps(int from, int to) {
    for (int step = from; step < to; ++step) {
      Gradients(step);
      ASSERT_THAT(engine->Step(0.01), IsOk());
    }
  }
  uint64_t Digest() {
    const Result<uint64_t> digest = engine->WeightDigest();
    EXPECT_THAT(digest, IsOk());
    return digest.ok() ? *digest : 0;
  }

  static size_t Index(int p) { return static_cast<size_t>(p); }

  std::unique_ptr<ZeroEngine> engine;
  std::vector<ParamId> ids;
  ThreadLane lane{"compute"};

 private:
  const DType dtype_;
};

class OptimizerStateTest : public ZeroEngineTest {
 protected:
  void OnTwoRanks(const ZeroOptions& options, DType dtype,
                  const std::function<void(Rank&)>& body) {
    auto world = MakeInProcessWorld({.world = 2, .executor = &pool_});
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        Rank rank(options, world[static_cast<size_t>(r)].get(), dtype);
        body(rank);
        if (rank.engine == nullptr) return;
        EXPECT_THAT(rank.engine->Close(), IsOk());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

struct Kept {
  std::vector<float> values;
  std::vector<float> moments[2];
  int64_t count = 0;
};

// A training that another engine goes on with, from what was read of the first.
TEST_F(OptimizerStateTest, WhatIsReadGoesOnAsTheSameTraining) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int stage : {0, 1, 3}) {
      SCOPED_TRACE(testing::Message() << "stage " << stage);
      const ZeroOptions options = Tight(stage, KiB(160), KiB(128));
      std::vector<Kept> kept(kParams);
      uint64_t whole = 0;
      OnTwoRanks(options, dtype, [&](Rank& rank) {
        rank.Steps(0, 2);
        for (int p = 0; p < kParams; ++p) {
          const ParamId id = rank.ids[Rank::Index(p)];
          Kept read;
          read.values.resize(kElements);
          EXPECT_THAT(rank.engine->ReadParam(id, read.values), IsOk());
          for (const int m : {0, 1}) {
            read.moments[m].resize(kElements);
            const Status status = rank.engine->ReadState(
                id, m == 0 ? OptimizerState(0) : OptimizerState(1),
                read.moments[m]);
            if (p == 4) {
              EXPECT_THAT(status, StatusIs(ErrorCode::kInvalidArgument,
                                           HasSubstr("p4 has no exp_avg")));
            } else {
              EXPECT_THAT(status, IsOk());
            }
          }
          const Result<int64_t> count = rank.engine->UpdateCount(id);
          ASSERT_THAT(count, IsOk());
          EXPECT_EQ(*count, p == 4 ? 0 : 2);
          read.count = *count;
          if (rank.engine->rank() == 0) kept[Rank::Index(p)] = read;
        }
        rank.Steps(2, 4);
        const uint64_t digest = rank.Digest();
        if (rank.engine->rank() == 0) whole = digest;
      });
      OnTwoRanks(Roomy(3), dtype, [&](Rank& rank) {
        for (int p = 0; p < kParams; ++p) {
          const ParamId id = rank.ids[Rank::Index(p)];
          const Kept& state = kept[Rank::Index(p)];
          ASSERT_THAT(rank.engine->WriteParam(id, state.values), IsOk());
          if (p == 4) continue;
          ASSERT_THAT(
              rank.engine->WriteState(id, OptimizerState(0), state.moments[0]),
              IsOk());
          ASSERT_THAT(
              rank.engine->WriteState(id, OptimizerState(1), state.moments[1]),
              IsOk());
          ASSERT_THAT(rank.engine->SetUpdateCount(id, state.count), IsOk());
        }
        rank.Steps(2, 4);
        EXPECT_EQ(rank.Digest(), whole);
      });
    }
  }
}

TEST_F(OptimizerStateTest, StatesAreWrittenAlikeAndBetweenSteps) {
  OnTwoRanks(Roomy(2), DType::kF32, [](Rank& rank) {
    const std::vector<float> values(kElements,
                                    static_cast<float>(rank.engine->rank()));
    const ParamId id = rank.ids[1];
    EXPECT_THAT(rank.engine->WriteState(id, OptimizerState(0), values),
                StatusIs(ErrorCode::kInvalidArgument,
                         HasSubstr("p1 different values")));
    EXPECT_THAT(rank.engine->SetUpdateCount(id, rank.engine->rank()),
                StatusIs(ErrorCode::kInvalidArgument,
                         HasSubstr("p1 different values")));
    EXPECT_THAT(rank.engine->SetUpdateCount(id, -1),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("-1 times")));
    rank.Gradients(0);
    EXPECT_THAT(rank.engine->WriteState(id, OptimizerState(0), values),
                NotNow("before WriteState"));
    EXPECT_THAT(rank.engine->SetUpdateCount(id, 3),
                NotNow("before SetUpdateCount"));
    EXPECT_THAT(rank.engine->Abandon(), IsOk());
  });
}

TEST_F(OptimizerStateTest, NumbersThatAreSetAreThoseOfTheStart) {
  for (const OptimizerKind kind :
       {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    ZeroOptions given = Roomy(3);
    given.optimizer = DefaultOptimizerOptions(kind);
    given.optimizer.momentum = kind == OptimizerKind::kSgd ? 0.5 : 0;
    given.groups = {{.name = "even"}};
    ZeroOptions told = given;
    told.optimizer.weight_decay = 0.25;
    told.optimizer.beta1 = 0.7;
    told.groups[0].beta1 = 0.6;
    told.groups[0].eps = 1e-4;
    told.groups[0].weight_decay = given.optimizer.weight_decay;
    uint64_t digests[3] = {};
    OnTwoRanks(told, DType::kF32, [&](Rank& rank) {
      rank.Steps(0, 3);
      const uint64_t digest = rank.Digest();
      if (rank.engine->rank() == 0) digests[0] = digest;
    });
    OnTwoRanks(given, DType::kF32, [&](Rank& rank) {
      EXPECT_THAT(rank.engine->SetHyperParameters(
                      "", {.beta1 = 0.7, .weight_decay = 0.25}),
                  IsOk());
      EXPECT_THAT(
          rank.engine->SetHyperParameters("even", {.beta1 = 0.6, .eps = 1e-4}),
          IsOk());
      rank.Steps(0, 3);
      const uint64_t digest = rank.Digest();
      if (rank.engine->rank() == 0) digests[1] = digest;
    });
    OnTwoRanks(given, DType::kF32, [&](Rank& rank) {
      rank.Steps(0, 3);
      const uint64_t digest = rank.Digest();
      if (rank.engine->rank() == 0) digests[2] = digest;
    });
    EXPECT_EQ(digests[0], digests[1]);
    EXPECT_NE(digests[0], digests[2]);
  }
}

TEST_F(OneRankEngineTest, RefusesNumbersThatNoOptimizerHas) {
  ZeroOptions options = Roomy(3);
  options.optimizer = DefaultOptimizerOptions(OptimizerKind::kSgd);
  Open(options, 2);
  EXPECT_THAT(engine_->SetHyperParameters("", {.weight_decay = -1}),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("parameters in no group")));
  EXPECT_THAT(engine_->SetHyperParameters("", {.momentum = 0.9}),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("a momentum of 0.9 needs a moment")));
  EXPECT_THAT(engine_->SetHyperParameters("odd", {}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("odd")));
}

// Ranks that set different ones are told so by the step.
TEST_F(OptimizerStateTest, RanksSetTheSameNumbers) {
  OnTwoRanks(Roomy(3), DType::kF32, [](Rank& rank) {
    EXPECT_THAT(rank.engine->SetHyperParameters(
                    "", {.beta2 = 0.9 + 0.01 * rank.engine->rank()}),
                IsOk());
    rank.Gradients(0);
    EXPECT_THAT(rank.engine->Step(0.1).status(), NotNow("different steps"));
    rank.engine = nullptr;  // it tells of the failure once more
  });
}

TEST_F(OptimizerStateTest, ClippingBeforeTheStepIsTheClippingOfOptions) {
  ZeroOptions by_options = Tight(3, KiB(160), KiB(128));
  by_options.clip_norm = 0.5;
  by_options.loss_scaling = {.kind = LossScalingKind::kStatic, .initial = 4};
  ZeroOptions by_call = by_options;
  by_call.clip_norm = 0;
  by_call.count_norm = true;
  uint64_t digests[2] = {};
  double norms[2] = {};
  OnTwoRanks(by_options, DType::kF32, [&](Rank& rank) {
    rank.Steps(0, 2);
    rank.Gradients(2, 2);
    const Result<StepResult> step = rank.engine->Step(0.01);
    ASSERT_THAT(step, IsOk());
    const uint64_t digest = rank.Digest();
    if (rank.engine->rank() != 0) return;
    digests[0] = digest;
    norms[0] = step->grad_norm;
  });
  OnTwoRanks(by_call, DType::kF32, [&](Rank& rank) {
    EXPECT_THAT(rank.engine->ClipGradients(1).status(),
                NotNow("after the last micro-batch"));
    for (int step = 0; step < 3; ++step) {
      rank.Gradients(step, step == 2 ? 2 : 1);
      EXPECT_THAT(rank.engine->ClipGradients(0).status(),
                  StatusIs(ErrorCode::kInvalidArgument, HasSubstr("0")));
      // The last one counts, and tells the same.
      const Result<double> loose = rank.engine->ClipGradients(1e9);
      const Result<double> norm = rank.engine->ClipGradients(0.5);
      ASSERT_THAT(norm, IsOk());
      EXPECT_EQ(*loose, *norm);
      const std::vector<float> values(kElements);
      EXPECT_THAT(rank.engine->Grad(rank.ids[0], rank.lane).status(),
                  NotNow("norm of this step is taken"));
      EXPECT_THAT(rank.engine->WriteGrad(rank.ids[0], values),
                  NotNow("norm of this step is taken"));
      const Result<StepResult> made = rank.engine->Step(0.01);
      ASSERT_THAT(made, IsOk());
      EXPECT_EQ(made->grad_norm, *norm);
      EXPECT_LT(made->clip_factor, 1);
      if (rank.engine->rank() == 0) norms[1] = *norm;
    }
    const uint64_t digest = rank.Digest();
    if (rank.engine->rank() == 0) digests[1] = digest;
  });
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_GT(norms[0], 0.5);
}

TEST_F(OptimizerStateTest, AStepThatWasClippedMayBeAbandoned) {
  ZeroOptions options = Roomy(3);
  options.count_norm = true;
  OnTwoRanks(options, DType::kF32, [](Rank& rank) {
    rank.Gradients(0);
    EXPECT_THAT(rank.engine->ClipGradients(0.25), IsOk());
    EXPECT_THAT(rank.engine->Abandon(), IsOk());
    rank.Gradients(0);
    const Result<StepResult> step = rank.engine->Step(0.1);
    ASSERT_THAT(step, IsOk());
    EXPECT_GT(step->grad_norm, 0.25);
    EXPECT_EQ(step->clip_factor, 1);
  });
}

TEST_F(OneRankEngineTest, NothingIsClippedWhereNoNormIsCounted) {
  Open(Roomy(3), 2);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  Backward({1, 0});
  EXPECT_THAT(engine_->ClipGradients(1).status(), NotNow("count_norm"));
}

TEST_F(OptimizerStateTest, MicroBatchesAreSummedUpWhereAsked) {
  for (const bool averages : {true, false}) {
    ZeroOptions options = Roomy(3);
    options.average_micro_batches = averages;
    options.count_norm = true;
    OnTwoRanks(options, DType::kF32, [&](Rank& rank) {
      for (int m = 0; m < 4; ++m) {
        ASSERT_THAT(rank.engine->BeginMicroBatch(m == 3), IsOk());
        for (int p : {5, 1}) {
          const Result<void*> grad =
              rank.engine->Grad(rank.ids[Rank::Index(p)], rank.lane);
          ASSERT_THAT(grad, IsOk());
          std::fill_n(static_cast<float*>(*grad), kElements,
                      static_cast<float>(rank.engine->rank() + 1));
          ASSERT_THAT(
              rank.engine->GradReady(rank.ids[Rank::Index(p)], rank.lane),
              IsOk());
        }
      }
      ASSERT_THAT(rank.engine->ClipGradients(1e9), IsOk());
      std::vector<float> read(kElements);
      ASSERT_THAT(rank.engine->ReadGrad(rank.ids[5], read), IsOk());
      EXPECT_THAT(read, Each(averages ? 1.5f : 6.0f));
      ASSERT_THAT(rank.engine->Step(0.1), IsOk());
    });
  }
}

}  // namespace
}  // namespace castor
