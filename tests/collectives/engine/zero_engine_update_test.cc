// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Optimizers that are the program's own: what its update is given, whatever the
// stage, world and placement, and what happens where it fails.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout_file.h"
#include "collectives/custom_update.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/optimizer_options.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

OptimizerOptions Custom(std::vector<std::string> states,
                        UpdateSpan span = UpdateSpan::kElements) {
  OptimizerOptions options = DefaultOptimizerOptions(OptimizerKind::kCustom);
  options.states = std::move(states);
  options.span = span;
  return options;
}

// Castor's own AdamW, called as a program's update.
Status AdamW(const UpdateCall& call) {
  for (const UpdateRun& run : call.runs) {
    OptimizerOptions options;
    options.lr = run.lr;
    OptimizerBuffers buffers;
    buffers.grad = run.grad;
    buffers.grad_dtype = call.grad_dtype;
    buffers.param = run.values;
    buffers.exp_avg = run.states[0];
    buffers.exp_avg_sq = run.states[1];
    OptimizerStep(buffers, run.elements,
                  ComputeOptimizerScalars(options, run.step), call.grad_factor);
  }
  return OkStatus();
}

ToyRun Updating(UpdateFunction update) {
  ToyRun run;
  run.update = std::move(update);
  return run;
}

TEST_F(ZeroEngineTest, AProgramsAdamWHasTheBitsOfCastorsOwn) {
  int combination = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(2, 24, 2000, dtype);
    for (const int world : {1, 2, 3}) {
      ToyRun plain;
      plain.micro_batches = 2;
      plain.unused = {3, 7};
      const ToyResult want =
          TrainToyReference(model, plain, world, 0.02, OptimizerOptions());
      for (int stage = 0; stage <= 3; ++stage) {
        for (const bool tight : {false, true}) {
          if (combination++ % TestStride() != 0) continue;
          SCOPED_TRACE(testing::Message()
                       << DTypeName(dtype) << " world " << world << " stage "
                       << stage << (tight ? " with NVMe" : " on the device"));
          ZeroOptions options =
              tight ? Tight(stage, KiB(48), KiB(200)) : Roomy(stage);
          options.clip_norm = 0.02;
          options.optimizer = Custom({"exp_avg", "exp_avg_sq"});
          ToyRun run = Updating(AdamW);
          run.micro_batches = plain.micro_batches;
          run.unused = plain.unused;
          const ToyResult got = TrainToy(model, run, world, options);
          ExpectEqual(got, want);
          ExpectWithinBudgets(got);
        }
      }
    }
  }
}

TEST_F(ZeroEngineTest, AProgramsUpdateMayBeginInTheBackward) {
  const ToyModel model = MakeToyModel(3, 24, 2000, DType::kF32);
  ToyRun plain;
  plain.steps = 4;
  const ToyResult want =
      TrainToyReference(model, plain, 2, 0, OptimizerOptions());
  for (const int stage : {2, 3}) {
    ZeroOptions options = Tight(stage, KiB(48), KiB(200));
    options.optimizer = Custom({"exp_avg", "exp_avg_sq"});
    ToyRun run = Updating(AdamW);
    run.steps = plain.steps;
    run.updates_early = true;
    const ToyResult got = TrainToy(model, run, 2, options);
    ExpectEqual(got, want);
    EXPECT_GT(got.stats.early_updates, 0);
  }
}

// The update takes the gradient on its way, and the states where they are.
TEST_F(ZeroEngineTest, AGradientOfADriveUpdatesStatesOnTheDevice) {
  const ToyModel model = MakeToyModel(5, 24, 2000, DType::kBF16);
  ToyRun plain;
  plain.steps = 3;
  const ToyResult want =
      TrainToyReference(model, plain, 2, 0, OptimizerOptions());
  for (const bool program : {false, true}) {
    SCOPED_TRACE(program ? "a program's update" : "Castor's own");
    ZeroOptions options = Tight(3, MiB(8), MiB(1));
    options.home_rules = {{.state = "grad", .tier = Tier::kNvme},
                          {.tier = Tier::kDevice}};
    ToyRun run;
    if (program) {
      options.optimizer = Custom({"exp_avg", "exp_avg_sq"});
      run = Updating(AdamW);
    }
    run.steps = plain.steps;
    const auto from_device = [](const ToyResult& result) {
      return result.stats
          .moved[TierIndex(Tier::kDevice)][TierIndex(Tier::kHost)];
    };
    const ToyResult late = TrainToy(model, run, 2, options);
    ExpectEqual(late, want);
    run.updates_early = true;
    const ToyResult got = TrainToy(model, run, 2, options);
    ExpectEqual(got, want);
    EXPECT_GT(got.stats.early_updates, 0);
    EXPECT_LT(from_device(got), from_device(late));
  }
}

TEST_F(ZeroEngineTest, CallsComeOneAtATimeWhereverStatesLive) {
  const ToyModel model = MakeToyModel(4, 30, 2000, DType::kF32);
  ZeroOptions options = Roomy(3);
  options.optimizer = Custom({"exp_avg", "exp_avg_sq"});
  for (size_t p = 0; p < model.params.size(); p += 2) {
    options.home_rules.push_back(
        {.glob = model.params[p].name, .tier = Tier::kHost});
  }
  options.chunk_size = KiB(1);
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  ToyRun run = Updating([&](const UpdateCall& call) {
    if (call.on_device) return AdamW(call);  // runs when its stream gets there
    const int now = ++inside;
    if (now > most) most = now;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    --inside;
    return AdamW(call);
  });
  run.steps = 2;
  ASSERT_THAT(TrainToy(model, run, 1, options).status, IsOk());
  EXPECT_EQ(most, 1);
}

// Which elements of a parameter a step's calls have had.
class Seen {
 public:
  void Note(const UpdateCall& call) {
    std::lock_guard lock(mutex_);
    int64_t elements = 0;
    for (const UpdateRun& run : call.runs) {
      elements += run.elements;
      runs_[{run.step, run.param.value()}].emplace_back(run.first_element,
                                                        run.elements);
    }
    if (!call.on_device) largest_call_ = std::max(largest_call_, elements);
  }
  Status Take(const UpdateCall& call) {
    Note(call);
    for (const UpdateRun& run : call.runs) {
      // The update moves each element by what it had been moved before.
      for (int64_t i = 0; i < run.elements; ++i) {
        run.states[0][i] += 1;
        run.values[i] = run.states[0][i];
      }
    }
    return OkStatus();
  }

  // Each element of each parameter came once in each of `steps` steps.
  void ExpectAll(const ToyModel& model, int steps) {
    for (int step = 1; step <= steps; ++step) {
      for (size_t p = 0; p < model.params.size(); ++p) {
        auto& runs = runs_[{step, static_cast<int32_t>(p)}];
        std::sort(runs.begin(), runs.end());
        int64_t next = 0;
        for (const auto& [first, count] : runs) {
          ASSERT_EQ(first, next) << "step " << step << ", parameter " << p;
          next += count;
        }
        ASSERT_EQ(next, toy::SizeOf(model.params[p])) << p;
      }
    }
  }
  bool whole(size_t param) {
    return runs_[{1, static_cast<int32_t>(param)}].size() == 1;
  }
  int64_t largest_call() const { return largest_call_; }

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, int32_t>,
           std::vector<std::pair<int64_t, int64_t>>>
      runs_;
  int64_t largest_call_ = 0;
};

// Larger than a piece of staging (4 Mi elements) and than a call.
ToyModel WithALargeParameter(DType dtype) {
  ToyModel model = MakeToyModel(5, 8, 2000, dtype);
  model.params.insert(model.params.begin() + 3, {"large", {5'000'001}, dtype});
  return model;
}

TEST_F(ZeroEngineTest, RunsOfElementsAreEachElementOnceAndFitACache) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = WithALargeParameter(dtype);
    ZeroOptions options = Tight(3, MiB(64), MiB(90));
    options.optimizer = Custom({"count"});
    options.home_rules = {{.glob = "large", .tier = Tier::kNvme}};
    Seen seen;
    ToyRun run =
        Updating([&](const UpdateCall& call) { return seen.Take(call); });
    run.steps = 2;
    run.blind = true;
    const ToyResult got = TrainToy(model, run, 1, options);
    ASSERT_THAT(got.status, IsOk());
    seen.ExpectAll(model, 2);
    EXPECT_LE(seen.largest_call(), 1 << 18);
    for (const std::vector<float>& values : got.weights) {
      EXPECT_EQ(std::ranges::count(values, 2.0f), std::ssize(values));
    }
  }
}

TEST_F(ZeroEngineTest, AnUpdateOfWholeParametersHasEachInOneRun) {
  for (const int stage : {0, 3}) {
    const ToyModel model = WithALargeParameter(DType::kF32);
    ZeroOptions options = Tight(stage, MiB(64), MiB(160));
    options.optimizer = Custom({"count"}, UpdateSpan::kParameter);
    options.home_rules = {{.glob = "large", .tier = Tier::kNvme}};
    Seen seen;
    ToyRun run =
        Updating([&](const UpdateCall& call) { return seen.Take(call); });
    run.steps = 2;
    run.blind = true;
    const ToyResult got = TrainToy(model, run, 1, options);
    ASSERT_THAT(got.status, IsOk());
    seen.ExpectAll(model, 2);
    for (size_t p = 0; p < model.params.size(); ++p) {
      EXPECT_TRUE(seen.whole(p) || toy::SizeOf(model.params[p]) == 0) << p;
    }
  }
}

class OwnUpdateTest : public OneRankEngineTest {
 protected:
  void OpenSealed(UpdateFunction update, Bytes host = MiB(8)) {
    ZeroOptions options = Tight(3, host > MiB(1) ? MiB(8) : KiB(40), host);
    options.optimizer = Custom({"count"});
    Open(options, 6);
    ASSERT_THAT(engine_->Seal({}), IsOk());
    if (update) {
      ASSERT_THAT(engine_->SetUpdate(std::move(update)), IsOk());
    }
  }
  Result<StepResult> StepOnce() {
    CASTOR_RETURN_IF_ERROR(engine_->BeginMicroBatch(true));
    Backward({5, 4, 3, 2, 1, 0});
    return engine_->Step(0.1);
  }
};

TEST_F(OwnUpdateTest, ThatRefusesAtOnceLeavesAllAsItWasAndTrainingGoesOn) {
  bool refuses = true;
  std::vector<int64_t> steps;
  OpenSealed([&](const UpdateCall& call) {
    if (refuses) return FailedPrecondition("the rate is below zero");
    for (const UpdateRun& run : call.runs) {
      steps.push_back(run.step);
      for (int64_t i = 0; i < run.elements; ++i) run.values[i] = -1;
    }
    return OkStatus();
  });
  EXPECT_THAT(StepOnce(),
              StatusIs(ErrorCode::kFailedPrecondition,
                       AllOf(HasSubstr("the rate is below zero"),
                             HasSubstr("before it changed anything"))));
  for (int p = 0; p < 6; ++p) ExpectInitialValues(p);
  refuses = false;
  EXPECT_THAT(StepOnce(), IsOk());
  EXPECT_THAT(steps, testing::Each(1));
  std::vector<float> values(1024);
  ASSERT_THAT(engine_->ReadParam(ids_[3], values), IsOk());
  EXPECT_THAT(values, testing::Each(-1.0f));
}

TEST_F(OwnUpdateTest, ThatFailsHalfWayEndsTheEngineWithItsWords) {
  int calls = 0;
  OpenSealed(
      [&](const UpdateCall&) {
        return ++calls < 3 ? OkStatus() : FailedPrecondition("no third call");
      },
      KiB(200));
  const auto ended =
      StatusIs(ErrorCode::kAborted,
               AllOf(HasSubstr("no third call"), HasSubstr("checkpoint")));
  EXPECT_THAT(StepOnce(), ended);
  EXPECT_EQ(calls, 3);
  EXPECT_THAT(engine_->BeginMicroBatch(true), ended);
}

TEST_F(OwnUpdateTest, ThatMayHaveWrittenEndsTheEngineAtOnce) {
  OpenSealed([](const UpdateCall&) { return Internal("out of memory"); });
  EXPECT_THAT(StepOnce(),
              StatusIs(ErrorCode::kAborted, HasSubstr("out of memory")));
  EXPECT_THAT(engine_->BeginMicroBatch(true),
              StatusIs(ErrorCode::kAborted, HasSubstr("out of memory")));
}

TEST_F(OwnUpdateTest, IsAskedForBeforeTheStep) {
  OpenSealed({});
  EXPECT_THAT(StepOnce(), StatusIs(ErrorCode::kFailedPrecondition,
                                   HasSubstr("call SetUpdate()")));
  EXPECT_THAT(engine_->SetUpdate(AdamW),
              StatusIs(ErrorCode::kFailedPrecondition,
                       HasSubstr("a step is half done")));
  ASSERT_THAT(engine_->Abandon(), IsOk());
  EXPECT_THAT(engine_->SetUpdate(AdamW), IsOk());
}

TEST_F(OwnUpdateTest, IsRefusedWhereTheOptimizerIsCastors) {
  Open(Roomy(3), 2);
  EXPECT_THAT(engine_->SetUpdate(AdamW),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("adamw")));
}

TEST_F(OwnUpdateTest, HasStatesWhoseNamesMakeSense) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> refused =
      {{{"a/b"}, "names no state"},
       {{""}, "names no state"},
       {{"param"}, "unlike what Castor has itself"},
       {{"z", "z"}, "unlike each other"},
       {{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, "there may be 8"}};
  for (const auto& [states, why] : refused) {
    EXPECT_THAT(ValidateOptimizerOptions(Custom(states)),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(why)));
  }
  OptimizerOptions adam;
  adam.states = {"z"};
  EXPECT_THAT(ValidateOptimizerOptions(adam),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("has states of its own")));
  EXPECT_THAT(ValidateOptimizerOptions(Custom({"z", "exp_avg_sq"})), IsOk());
}

// Moves each parameter by its momentum, divided by the momentum's norm.
Status Normalized(const UpdateCall& call) {
  for (const UpdateRun& run : call.runs) {
    const auto* grad = static_cast<const float*>(run.grad);
    float sum = 0;
    for (int64_t i = 0; i < run.elements; ++i) {
      float& momentum = run.states[0][i];
      momentum = 0.5f * momentum + grad[i] * call.grad_factor;
      sum += momentum * momentum;
    }
    const float step = static_cast<float>(run.lr) / (1 + std::sqrt(sum));
    for (int64_t i = 0; i < run.elements; ++i) {
      run.values[i] -= step * run.states[0][i];
    }
  }
  return OkStatus();
}

TEST_F(ZeroEngineTest, WholeParametersHaveOneOwnerAndTheSameBitsAtEveryStage) {
  const ToyModel model = MakeToyModel(11, 20, 2000, DType::kF32);
  int combination = 0;
  for (const int world : {2, 3}) {
    ToyResult want;
    for (int stage = 0; stage <= 3; ++stage) {
      if (stage > 0 && combination++ % TestStride() != 0) continue;
      for (const bool tight : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << "world " << world << " stage " << stage
                     << (tight ? " with NVMe" : " on the device"));
        ZeroOptions options =
            tight ? Tight(stage, KiB(180), KiB(300)) : Roomy(stage);
        options.chunk_size.reset();
        if (tight) options.chunk_size = KiB(24);
        options.clip_norm = 0.02;
        options.optimizer = Custom({"momentum"}, UpdateSpan::kParameter);
        Seen seen;
        ToyRun run = Updating([&](const UpdateCall& call) {
          seen.Note(call);
          return Normalized(call);
        });
        run.micro_batches = 2;
        const ToyResult got = TrainToy(model, run, world, options);
        ASSERT_THAT(got.status, IsOk());
        ExpectWithinBudgets(got);
        if (stage == 0 && !tight) want = got;
        if (stage > 0) seen.ExpectAll(model, run.steps);
        ASSERT_EQ(got.weights, want.weights);
      }
    }
  }
}

TEST_F(ZeroEngineTest, WholeParametersLieBesideSuchThatMayBeCut) {
  ToyModel model = MakeToyModel(12, 12, 1500, DType::kF32);
  model.params.push_back({"vocabulary", {40'000}, DType::kF32});
  for (size_t p = 0; p < model.params.size(); ++p) {
    model.groups.push_back(p + 1 < model.params.size() ? "matrices" : "");
  }
  ZeroOptions options = Roomy(3);
  options.chunk_size = KiB(32);
  options.optimizer = Custom({"momentum"});
  options.groups = {{.name = "matrices", .span = UpdateSpan::kParameter}};
  Seen seen;
  ToyRun run = Updating([&](const UpdateCall& call) {
    seen.Note(call);
    return Normalized(call);
  });
  const ToyResult got = TrainToy(model, run, 2, options);
  ASSERT_THAT(got.status, IsOk());
  seen.ExpectAll(model, run.steps);
  for (size_t p = 0; p + 1 < model.params.size(); ++p) {
    EXPECT_TRUE(seen.whole(p) || toy::SizeOf(model.params[p]) == 0) << p;
  }
  EXPECT_FALSE(seen.whole(model.params.size() - 1));
}

TEST_F(ZeroEngineTest, GroupsKeepAsManyStatesAsTheySay) {
  ToyModel model = MakeToyModel(13, 12, 1500, DType::kBF16);
  for (size_t p = 0; p < model.params.size(); ++p) {
    model.groups.push_back(p % 3 == 0 ? "one" : p % 3 == 1 ? "none" : "");
  }
  for (const bool searched : {false, true}) {
    ZeroOptions options = Tight(3, KiB(64), KiB(120));
    if (searched) options.chunk_size.reset();
    options.optimizer = Custom({"a", "b"});
    options.groups = {{.name = "one", .states = 1},
                      {.name = "none", .states = 0}};
    std::mutex mutex;
    std::map<int32_t, int> states;
    ToyRun run = Updating([&](const UpdateCall& call) {
      std::lock_guard lock(mutex);
      for (const UpdateRun& each : call.runs) {
        int kept = 0;
        for (const float* state : each.states) kept += state != nullptr;
        states[each.param.value()] = kept;
        for (int64_t i = 0; i < each.elements; ++i) each.values[i] = 1;
      }
      return OkStatus();
    });
    const ToyResult got = TrainToy(model, run, 2, options);
    ASSERT_THAT(got.status, IsOk());
    for (const auto& [param, kept] : states) {
      EXPECT_EQ(kept, param % 3 == 0 ? 1 : param % 3 == 1 ? 0 : 2) << param;
    }
    EXPECT_GT(states.size(), 6u);
  }
}

TEST_F(ZeroEngineTest, ALayoutThatCutsAWholeParameterIsRefused) {
  ToyModel model;
  for (const char* name : {"a", "b", "c"}) {
    model.params.push_back({name, {1000}, DType::kF32});
  }
  const Elements size[] = {Elements(3072)};
  ZeroOptions options = Roomy(2);
  options.chunk_size.reset();
  options.layout = std::make_shared<const LayoutFile>(
      LayoutFile{model.params, *PackChunks(model.params, size, {.world = 2})});
  options.optimizer = Custom({"momentum"}, UpdateSpan::kParameter);
  EXPECT_THAT(TrainToy(model, Updating(Normalized), 2, options).status,
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("the layout cuts parameter \"b\"")));
}

TEST_F(ZeroEngineTest, ChunksTooSmallForWholeParametersAreRefusedWithNumbers) {
  ToyModel model = MakeToyModel(3, 6, 500, DType::kF32);
  model.params.push_back({"matrix", {1800}, DType::kF32});
  ZeroOptions options = Roomy(2);
  options.optimizer = Custom({"count"}, UpdateSpan::kParameter);
  EXPECT_THAT(
      TrainToy(model, Updating(Normalized), 2, options).status,
      StatusIs(ErrorCode::kInvalidArgument,
               AllOf(HasSubstr("'matrix' of 1800 elements"),
                     HasSubstr("give chunks of 3840 elements at least"))));
}

}  // namespace
}  // namespace castor
