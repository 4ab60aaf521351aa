// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Ranks that lack gradients which others have: a branch that was not taken, an
// expert without tokens. What is missing counts as zeros.

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

struct Case {
  int world = 2;
  int stage = 0;
  DType dtype = DType::kF32;
  GradMode mode = GradMode::kSeparate;
  AccumulationOrder order = AccumulationOrder::kEach;
  int micro_batches = 1;
  bool tight = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "world " << c.world << ", stage " << c.stage << ", "
             << DTypeName(c.dtype) << ", gradients " << static_cast<int>(c.mode)
             << " added " << static_cast<int>(c.order) << ", micro-batches "
             << c.micro_batches << ", tight " << c.tight;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (int world = 2; world <= 4; ++world) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const GradMode mode :
           {GradMode::kSeparate, GradMode::kFp32, GradMode::kReuse}) {
        for (const AccumulationOrder order :
             {AccumulationOrder::kEach, AccumulationOrder::kLast}) {
          for (const int micro_batches : {1, 3}) {
            if (mode == GradMode::kReuse &&
                (micro_batches > 1 || order == AccumulationOrder::kLast)) {
              continue;
            }
            const DType dtype = (world + stage + micro_batches) % 2 == 0 &&
                                        mode != GradMode::kReuse
                                    ? DType::kF32
                                    : DType::kBF16;
            for (const bool tight : {false, true}) {
              cases.push_back(
                  {world, stage, dtype, mode, order, micro_batches, tight});
            }
          }
        }
      }
    }
  }
  return cases;
}

class ZeroEngineMissingTest : public ZeroEngineTest {};

TEST_F(ZeroEngineMissingTest, AnySetOfGradientsByRankEqualsPlainArrays) {
  uint64_t seed = TestSeed(18);
  int64_t combination = 0;
  for (const Case& c : Cases()) {
    if (combination++ % TestStride() != 0) continue;
    SCOPED_TRACE(testing::Message() << "seed " << ++seed << ": " << c);
    const ToyModel model = MakeToyModel(seed, 14, 2500, c.dtype);
    ToyRun run;
    run.steps = 4;
    run.micro_batches = c.micro_batches;
    run.seed = seed;
    run.missing = 0.3;
    // Steps that differ from the recorded one, on all ranks alike.
    if (seed % 3 == 0) run.skipped = 0.2;
    run.unused = {5};
    // Parameters that are gathered together are acquired together.
    run.acquires_all = c.stage == 3;
    ZeroOptions options =
        c.tight ? Tight(c.stage, KiB(1), KiB(400)) : Roomy(c.stage);
    options.grad_mode = c.mode;
    options.accumulation = c.order;
    options.clip_norm = seed % 2 == 0 ? 0.05 : 0;
    ToyResult got = TrainToy(model, run, c.world, options);
    if (c.tight && RaiseAsAsked(got.status, options)) {
      got = TrainToy(model, run, c.world, options);
    }
    ExpectEqual(got, TrainToyReference(model, run, c.world, options));
    ExpectWithinBudgets(got);
    if (HasFatalFailure()) return;
  }
}

// What else a step may do while ranks lack gradients.
struct Variation {
  const char* name;
  int seeds;
  std::function<void(uint64_t seed, ToyModel& model, ToyRun& run,
                     ZeroOptions& options, int& world)>
      tune;
};

void Freeze(ToyModel& model, uint64_t seed) {
  for (size_t p = 0; p < model.params.size(); ++p) {
    if ((p * 7 + seed) % 3 == 0) model.params[p].trainable = false;
  }
}

void MixTypes(ToyModel& model, size_t every) {
  for (size_t p = 0; p < model.params.size(); ++p) {
    model.params[p].dtype = p % every == 0 ? DType::kF32 : DType::kBF16;
  }
}

void InPlace(ToyModel& model, ToyRun& run, ZeroOptions& options) {
  for (ParamSpec& spec : model.params) spec.dtype = DType::kBF16;
  run.micro_batches = 1;
  options.grad_mode = GradMode::kReuse;
}

std::vector<Variation> Variations() {
  return {
      {"frozen parameters", 12,
       [](uint64_t seed, ToyModel& model, ToyRun&, ZeroOptions& options, int&) {
         Freeze(model, seed);
         options.chunk_size = KiB(seed % 2 == 0 ? 10 : 7);
         options.keep_copies = seed % 4 >= 2;
         if (seed % 5 == 0) options.accumulation = AccumulationOrder::kLast;
       }},
      {"layers that all ranks skip", 40,
       [](uint64_t, ToyModel&, ToyRun& run, ZeroOptions&, int&) {
         run.skipped = 0.2;
       }},
      {"layers that all ranks skip, in place", 12,
       [](uint64_t, ToyModel& model, ToyRun& run, ZeroOptions& options, int&) {
         InPlace(model, run, options);
         options.device_budget = MiB(8);
         run.skipped = 0.2;
       }},
      {"an evaluation in the backward pass", 12,
       [](uint64_t seed, ToyModel&, ToyRun& run, ZeroOptions&, int&) {
         run.evaluates = [step =
                              static_cast<int>(seed % 3)](const ToyMoment& at) {
           return at.step == step && at.point == ToyPoint::kBackward &&
                  at.param % 3 == 0;
         };
       }},
      {"a step that is abandoned", 18,
       [](uint64_t seed, ToyModel&, ToyRun& run, ZeroOptions& options, int&) {
         options.stage = seed % 3 == 0 ? 2 : 3;
         run.abandons = [seed](const ToyMoment& at) {
           if (at.attempt > 0 || at.step != static_cast<int>(seed % 2 * 2)) {
             return false;
           }
           return seed % 5 == 0 ? at.point == ToyPoint::kEnd
                                : at.point == ToyPoint::kBackward &&
                                      at.param == 3 + seed % 8;
         };
       }},
      {"chunks of several types, most gradients missing", 16,
       [](uint64_t seed, ToyModel& model, ToyRun& run, ZeroOptions& options,
          int&) {
         MixTypes(model, 2);
         options.chunk_size = KiB(12);
         run.missing = 0.7;
         if (seed % 5 == 0) options.grad_mode = GradMode::kFp32;
       }},
      {"updates before the step", 24,
       [](uint64_t, ToyModel&, ToyRun& run, ZeroOptions&, int&) {
         run.updates_early = true;
         run.skipped = 0.1;
         run.missing = 0.2;
       }},
      {"whole gradients of several types", 12,
       [](uint64_t seed, ToyModel& model, ToyRun& run, ZeroOptions& options,
          int&) {
         MixTypes(model, 3);
         Freeze(model, seed);
         options.chunk_size = KiB(6 + 2 * static_cast<int64_t>(seed % 3));
         options.accumulation = AccumulationOrder::kLast;
         run.micro_batches = 3;
         if (seed % 3 == 0) options.grad_mode = GradMode::kFp32;
         options.clip_norm = 0.05;
         options.keep_copies = seed % 2 == 0;
       }},
      {"shard groups, fetches, spans", 24,
       [](uint64_t seed, ToyModel&, ToyRun&, ZeroOptions& options, int& world) {
         world = seed % 3 == 0 ? 4 : world;
         options.shard_group = seed % 3 == 0 ? 2 : 0;
         if (seed % 6 == 0) options.optimizer_span = OptimizerSpan::kWorld;
         options.prefetch.depth = static_cast<int>(seed % 4);
         options.clip_norm = seed % 2 == 0 ? 0.05 : 0;
         options.keep_copies = seed % 5 != 0;
       }}};
}

TEST_F(ZeroEngineMissingTest, WhateverElseAStepDoesEqualsPlainArrays) {
  const uint64_t first = TestSeed(1);
  for (const Variation& variation : Variations()) {
    for (int i = 0; i < variation.seeds; i += TestStride()) {
      const uint64_t seed = first + static_cast<uint64_t>(i);
      SCOPED_TRACE(testing::Message() << variation.name << ", seed " << seed);
      ToyModel model = MakeToyModel(seed, 14, 2500,
                                    seed % 2 == 0 ? DType::kF32 : DType::kBF16);
      ToyRun run;
      run.steps = 4;
      run.micro_batches = seed % 3 == 0 ? 2 : 1;
      run.seed = seed;
      run.missing = 0.4;
      run.acquires_all = true;
      int world = 2 + static_cast<int>(seed % 2);
      ZeroOptions options =
          seed % 4 < 2 ? Tight(3, KiB(1), KiB(400)) : Roomy(3);
      variation.tune(seed, model, run, options, world);
      ToyResult got = TrainToy(model, run, world, options);
      for (int raise = 0; raise < 2 && RaiseAsAsked(got.status, options);
           ++raise) {
        got = TrainToy(model, run, world, options);
      }
      ExpectEqual(got, TrainToyReference(model, run, world, options));
      if (HasFatalFailure()) return;
    }
  }
}

// Parameters of a chunk each. Rank 0 hands back a gradient in time, rank 1
// after both ranks have departed from the plan.
class LateRank {
 public:
  LateRank(const ZeroOptions& options, Communicator* communicator)
      : options_(options), communicator_(communicator) {}

  void Run() {
    status_ = Train();
    if (!status_.ok()) communicator_->Abort(status_);
  }
  const Status& status() const { return status_; }
  const std::vector<float>& weights() const { return weights_; }

 private:
  Status Train() {
    CASTOR_ASSIGN_OR_RETURN(engine_,
                            ZeroEngine::Create(options_, communicator_));
    for (int p = 0; p < 4; ++p) {
      CASTOR_ASSIGN_OR_RETURN(
          const ParamId id,
          engine_->Register(
              {"p" + std::to_string(p), {1024}, DType::kF32, true}, nullptr));
      ids_.push_back(id);
    }
    SealOptions declared;
    for (const ParamId id : ids_) declared.held.push_back({{id}, ids_});
    declared.held.push_back({{}, ids_});
    CASTOR_RETURN_IF_ERROR(engine_->Seal(declared));
    for (int step = 0; step < 2; ++step) {
      const bool late = step == 1 && communicator_->rank() == 1;
      CASTOR_RETURN_IF_ERROR(engine_->BeginMicroBatch(true));
      CASTOR_RETURN_IF_ERROR(engine_->UpdateEarly(1));
      CASTOR_RETURN_IF_ERROR(Use(2));
      CASTOR_RETURN_IF_ERROR(Gradient(2));
      CASTOR_RETURN_IF_ERROR(Use(1));
      if (!late) CASTOR_RETURN_IF_ERROR(Gradient(1));
      if (step == 1) CASTOR_RETURN_IF_ERROR(Use(3));  // not as recorded
      CASTOR_RETURN_IF_ERROR(Use(0));
      CASTOR_RETURN_IF_ERROR(Gradient(0));
      if (late) CASTOR_RETURN_IF_ERROR(Gradient(1));
      CASTOR_RETURN_IF_ERROR(engine_->Step(1).status());
    }
    weights_.resize(1024);
    CASTOR_RETURN_IF_ERROR(engine_->ReadParam(ids_[1], weights_));
    return engine_->Close();
  }
  Status Use(size_t p) {
    return engine_->Acquire(std::span(&ids_[p], 1), lane_).status();
  }
  Status Gradient(size_t p) {
    CASTOR_ASSIGN_OR_RETURN(void* const grad, engine_->Grad(ids_[p], lane_));
    for (int i = 0; i < 1024; ++i) static_cast<float*>(grad)[i] += 1;
    return engine_->GradReady(ids_[p], lane_);
  }

  const ZeroOptions options_;
  Communicator* const communicator_;
  ThreadLane lane_{"compute"};
  std::unique_ptr<ZeroEngine> engine_;
  std::vector<ParamId> ids_;
  Status status_;
  std::vector<float> weights_;
};

TEST_F(ZeroEngineMissingTest, WhatComesAgainIsNotUpdatedTwice) {
  ZeroOptions options = Roomy(3);
  options.chunk_size = KiB(4);
  options.optimizer = DefaultOptimizerOptions(OptimizerKind::kSgd);
  options.optimizer.weight_decay = 0;
  auto world = MakeInProcessWorld({.world = 2, .executor = &pool_});
  LateRank ranks[2] = {{options, world[0].get()}, {options, world[1].get()}};
  std::thread other([&] { ranks[1].Run(); });
  ranks[0].Run();
  other.join();
  for (const LateRank& rank : ranks) {
    ASSERT_THAT(rank.status(), IsOk());
    // Two steps of rate 1, with gradients of 1.
    EXPECT_THAT(rank.weights(), testing::Each(-2.0f));
  }
}

// What was not declared is refused where ranks have no plan to follow.
TEST_F(ZeroEngineMissingTest, SaysWhatToDeclareWhereRanksLackGradients) {
  const ToyModel model = MakeToyModel(3, 14, 2500, DType::kF32);
  ToyRun run;
  run.steps = 2;
  run.unused_by_rank = {{}, {9}};
  run.acquires_all = true;
  run.declares = false;
  const ZeroOptions options = Roomy(3);
  const ToyResult got = TrainToy(model, run, 2, options);
  EXPECT_THAT(got.status,
              StatusIs(ErrorCode::kFailedPrecondition,
                       Says("If a rank lacks a gradient that others have",
                            "declare at Seal")));
  run.declares = true;
  ExpectEqual(TrainToy(model, run, 2, options),
              TrainToyReference(model, run, 2, options));
}

}  // namespace
}  // namespace castor
