// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Weights are bit-equal, whatever the stage, world, layout and placement.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/log.h"
#include "collectives/zero_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/homes/static_policy.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "tests/support/fakes/shuffling_executor.h"
#include "tests/support/test_rounds.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

// All micro-batches count alike, also where gradients are whole on every rank.
// There Gemini weighs an earlier one by a power of the ranks (defect D4). What
// is clipped is the norm of all gradients; PatrickStar clamps each (B13).
TEST_F(ZeroEngineTest, EveryStageAndWorldEqualsPlainArraysBitByBit) {
  const ToyModel model = MakeToyModel(1, 12, 3000, DType::kF32);
  ToyRun run;
  run.micro_batches = 2;
  for (int world : {1, 2, 3}) {
    const ToyResult want =
        TrainToyReference(model, run, world, 0.01, OptimizerOptions());
    for (int stage = 0; stage <= 3; ++stage) {
      // Each world and each stage, where a sanitizer watches.
      if (TestStride() > 1 && (world + stage) % 3 != 0) continue;
      SCOPED_TRACE(testing::Message()
                   << "world " << world << " stage " << stage);
      ZeroOptions options = Roomy(stage);
      options.clip_norm = 0.01;
      const ToyResult got = TrainToy(model, run, world, options);
      ExpectEqual(got, want);
      ExpectWithinBudgets(got);
    }
  }
}

TEST_F(ZeroEngineTest, EveryOptimizerEqualsPlainArraysBitByBit) {
  std::vector<OptimizerOptions> optimizers;
  for (OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW,
                             OptimizerKind::kSgd, OptimizerKind::kLion}) {
    OptimizerOptions options = DefaultOptimizerOptions(kind);
    options.weight_decay = 0.1;
    optimizers.push_back(options);
    options.momentum = 0.9;
    options.moment_dtype = DType::kBF16;  // rounded by chance
    options.seed = 7;
    optimizers.push_back(options);
  }
  const ToyModel model = MakeToyModel(21, 12, 3000, DType::kBF16);
  int combination = 0;
  for (const OptimizerOptions& optimizer : optimizers) {
    const ToyResult want = TrainToyReference(model, ToyRun(), 2, 0, optimizer);
    for (int stage : {0, 2, 3}) {
      // Each optimizer once at least, where a sanitizer watches.
      if (TestStride() > 1 && combination++ % 4 != 0) continue;
      SCOPED_TRACE(testing::Message()
                   << OptimizerName(optimizer.kind) << ", moments "
                   << DTypeName(optimizer.moment_dtype) << ", stage " << stage);
      ZeroOptions options = Tight(stage, KiB(48), KiB(200));
      options.optimizer = optimizer;
      const ToyResult got = TrainToy(model, ToyRun(), 2, options);
      ExpectEqual(got, want);
      ExpectWithinBudgets(got);
    }
  }
}

TEST_F(ZeroEngineTest, TightBudgetsWithNvmeChangeNoBit) {
  int combination = 0;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(2, 30, 2000, dtype);
    ToyRun run;
    run.micro_batches = 2;
    run.steps = 4;
    for (int world : {1, 2, 3}) {
      const ToyResult want =
          TrainToyReference(model, run, world, 0.02, OptimizerOptions());
      for (int stage = 0; stage <= 3; ++stage) {
        if (combination++ % TestStride() != 0) continue;
        // With every world, every stage and every type.
        const int depth =
            (world + stage + (dtype == DType::kF32)) % 2 == 0 ? 3 : 0;
        SCOPED_TRACE(testing::Message()
                     << DTypeName(dtype) << " world " << world << " stage "
                     << stage << " prefetch " << depth);
        ZeroOptions options = Tight(stage, KiB(48), KiB(200));
        options.clip_norm = 0.02;
        options.prefetch.depth = depth;
        const ToyResult got = TrainToy(model, run, world, options);
        ExpectEqual(got, want);
        ExpectWithinBudgets(got);
        EXPECT_GT(
            got.stats.moved[TierIndex(Tier::kHost)][TierIndex(Tier::kDevice)],
            Bytes(0));
      }
    }
  }
}

// By deadlines the same is fetched, at other times.
TEST_F(ZeroEngineTest, DeadlinesChangeNoBitAndNoFetch) {
  TierModel machine;
  machine.host_to_device = LinkModel{900'000'000, 2'000};
  machine.nvme_read = LinkModel{300'000'000, 9'000};
  machine.nvme_write = LinkModel{200'000'000, 5'000};
  machine.all_gather = RingModel{500'000'000, 2'000};
  const ToyModel model = MakeToyModel(6, 30, 2000, DType::kF32);
  // What three steps and five have begun for the next one is the same.
  ToyRun run[2];
  run[0].steps = 3;
  run[1].steps = 5;
  int combination = 0;
  for (const int world : {1, 2}) {
    for (const PlanPolicy policy : {PlanPolicy::kAuto, PlanPolicy::kPlanned}) {
      if (combination++ % TestStride() != 0) continue;
      SCOPED_TRACE(testing::Message()
                   << "world " << world << ", " << PlanPolicyName(policy));
      EngineStats stats[2][2];  // by mode, by run
      for (const bool in_time : {false, true}) {
        ZeroOptions options = Tight(3, KiB(72), KiB(200));
        options.clip_norm = 0.02;
        options.policy = policy;
        options.prefetch.depth = 0;  // deadlines set no such limit
        options.machine = machine;
        if (in_time) {
          options.prefetch.mode = PrefetchMode::kDeadlines;
          options.step_compute_ns = 2'000'000;
        }
        for (size_t r = 0; r < 2; ++r) {
          const ToyResult got = TrainToy(model, run[r], world, options);
          ExpectEqual(got, TrainToyReference(model, run[r], world, 0.02,
                                             OptimizerOptions()));
          ExpectWithinBudgets(got);
          stats[in_time ? 1 : 0][r] = got.stats;
        }
      }
      const auto of_steps = [&](int64_t EngineStats::*counter, size_t mode) {
        return stats[mode][1].*counter - stats[mode][0].*counter;
      };
      for (int64_t EngineStats::*counter :
           {&EngineStats::gathers, &EngineStats::fetches,
            &EngineStats::releases}) {
        EXPECT_EQ(of_steps(counter, 0), of_steps(counter, 1));
        EXPECT_GT(of_steps(counter, 1), 0);
      }
      EXPECT_NE(of_steps(&EngineStats::prefetched_gathers, 0),
                of_steps(&EngineStats::prefetched_gathers, 1))
          << "they were to be planned otherwise";
    }
  }
}

TEST_F(ZeroEngineTest, WhatDeadlinesLackIsSaidOnce) {
  const ToyModel model = MakeToyModel(6, 30, 2000, DType::kF32);
  const auto said_of = [&](const std::optional<TierModel>& machine) {
    std::vector<std::string> said;
    Log log([&](LogLevel, std::string_view line) {
      if (line.find("by deadlines") != line.npos) said.emplace_back(line);
    });
    ZeroOptions options = Tight(3, KiB(72), KiB(200));
    options.prefetch.mode = PrefetchMode::kDeadlines;
    options.machine = machine;
    options.log = &log;
    ExpectEqual(TrainToy(model, ToyRun(), 2, options),
                TrainToyReference(model, ToyRun(), 2, 0, OptimizerOptions()));
    return said;
  };
  EXPECT_THAT(said_of(std::nullopt),
              testing::ElementsAre(testing::HasSubstr(
                  "chunks before their use: no machine tells how fast links "
                  "are, and no compute time of a step is declared")));
  TierModel machine;
  machine.host_to_device = LinkModel{900'000'000, 2'000};
  machine.nvme_read = LinkModel{300'000'000, 9'000};
  EXPECT_THAT(said_of(machine),
              testing::ElementsAre(testing::HasSubstr(
                  "the machine does not know all_gather, and no compute time "
                  "of a step is declared")));
}

TEST_F(ZeroEngineTest, ShardsKeptOnTheDeviceChangeNoBit) {
  const auto orders = static_cast<uint64_t>(TestRounds(6));
  for (const bool nvme : {false, true}) {
    ToyModel model = MakeToyModel(21, 24, 2000, DType::kF32);
    for (size_t p = 0; nvme && p < model.params.size(); p += 3) {
      model.params[p].trainable = false;
    }
    ToyRun run;
    run.steps = 4;
    run.micro_batches = 2;
    const ToyResult want =
        TrainToyReference(model, run, 4, 0.05, OptimizerOptions());
    ZeroOptions options = Tight(3, KiB(72), KiB(400));
    options.clip_norm = 0.05;
    if (nvme) {
      options.home_limits = {{{"param", Tier::kHost, 0.0}}};
    }
    const ToyResult on_demand = TrainToy(model, run, 4, options);
    ExpectEqual(on_demand, want);
    EXPECT_EQ(on_demand.stats.fetches, on_demand.stats.gathers);
    options.policy = PlanPolicy::kPlanned;
    for (uint64_t seed = 0; seed <= orders; ++seed) {
      // On threads here and in an order drawn there, where a sanitizer watches.
      if (TestStride() > 1 && (seed > 0) != nvme) continue;
      SCOPED_TRACE(testing::Message() << "NVMe " << nvme << " seed " << seed);
      // In whatever order what is ready runs.
      ShufflingExecutor executor(seed);
      if (seed > 0) options.executor = &executor;
      run.worker_lanes = static_cast<int>(seed % 3);
      const ToyResult got = TrainToy(model, run, 4, options);
      ExpectEqual(got, want);
      ExpectWithinBudgets(got);
      EXPECT_LT(got.stats.fetches, got.stats.gathers);
      EXPECT_EQ(got.stats.divergences, 0);
    }
  }
}

TEST_F(ZeroEngineTest, NorDoTheyAcrossEvaluationsAndAbandonedSteps) {
  const ToyModel model = MakeToyModel(21, 24, 2000, DType::kF32);
  ToyRun run;
  run.steps = 5;
  run.micro_batches = 2;
  const ToyResult want =
      TrainToyReference(model, run, 4, 0.05, OptimizerOptions());
  run.evaluates = [](const ToyMoment& at) { return at.param % 12 == 3; };
  run.abandons = [](const ToyMoment& at) {
    return at.attempt == 0 && at.step == 3 && at.param == 9;
  };
  ZeroOptions options = Tight(3, KiB(72), KiB(400));
  options.clip_norm = 0.05;
  options.policy = PlanPolicy::kPlanned;
  const ToyResult got = TrainToy(model, run, 4, options);
  ExpectEqual(got, want);
  ExpectWithinBudgets(got);
  EXPECT_LT(got.stats.fetches, got.stats.gathers);
}

TEST_F(ZeroEngineTest, FrozenMixedAndOversizeParametersTrainAlongside) {
  ToyModel model = MakeToyModel(3, 16, 1500, DType::kF32);
  for (size_t p = 0; p < model.params.size(); ++p) {
    if (p % 4 == 1) model.params[p].dtype = DType::kBF16;
    if (p % 5 == 2) model.params[p].trainable = false;
  }
  // Quantized by somebody else: bytes, of which one needs a chunk of its own.
  model.params[2].dtype = model.params[12].dtype = DType::kU8;
  model.params[12].shape = {9001};
  model.params[7].shape = {5000};  // larger than a chunk of 8 KiB
  model.params[8].shape = {40, 150};
  ToyRun run;
  run.micro_batches = 2;
  const ToyResult want =
      TrainToyReference(model, run, 2, 0.05, OptimizerOptions());
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    ZeroOptions options = Tight(stage, KiB(190), KiB(400));
    options.clip_norm = 0.05;
    const ToyResult got = TrainToy(model, run, 2, options);
    ExpectEqual(got, want);
    ExpectWithinBudgets(got);
  }
}

// Gemini takes the weights of a chunk that nobody used for its gradients (D3).
TEST_F(ZeroEngineTest, ParametersNobodyUsedStayAsTheyWere) {
  const ToyModel model = MakeToyModel(4, 10, 800, DType::kF32);
  ToyRun run;
  run.unused = {0, 4, 5, 9};
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    ZeroOptions options = Roomy(stage);
    options.clip_norm = 0.05;
    const ToyResult got = TrainToy(model, run, 2, options);
    ExpectEqual(got,
                TrainToyReference(model, run, 2, 0.05, OptimizerOptions()));
    ToyRun still;
    still.steps = 0;
    const ToyResult start = TrainToyReference(model, still, 2, 0, {});
    for (int p : run.unused) {
      EXPECT_EQ(got.weights[static_cast<size_t>(p)],
                start.weights[static_cast<size_t>(p)]);
    }
  }
}

// Unused here and used there, used twice, frozen: PatrickStar has a counter for
// each, which do not add up (defect B11).
TEST_F(ZeroEngineTest, AGradientOfOneRankUpdatesTheParameterOnAll) {
  const ToyModel model = MakeToyModel(16, 10, 800, DType::kBF16);
  ToyRun run;
  run.declares = false;
  // Ranks use as many parameters of one chunk, but other parameters.
  run.unused = {9};
  run.unused_by_rank = {{0, 3, 5, 7, 8}, {0, 4, 6, 7, 8}};
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    ZeroOptions options = Roomy(stage);
    options.chunk_size = KiB(64);
    options.clip_norm = 0.05;
    const ToyResult got = TrainToy(model, run, 2, options);
    ExpectEqual(got,
                TrainToyReference(model, run, 2, 0.05, OptimizerOptions()));
    ASSERT_EQ(got.layout.chunks().size(), 1u);
  }
}

// Whatever order lanes run in (PatrickStar and FSDP2 had copies that overtook,
// defect B5).
//
// Nothing of a step then waits for the update of the step before but the homes
// of its gradients. What has none in the last micro-batch is in the norm too,
// also where nothing else in that micro-batch waits for it: one parameter.
TEST_F(ZeroEngineTest, GradientsThatDoNotLookAtTheWeightsChangeNoBit) {
  const ToyModel models[] = {MakeToyModel(17, 6, 6000, DType::kF32),
                             MakeToyModel(18, 1, 6000, DType::kF32)};
  ToyRun run;
  run.steps = 6;
  run.micro_batches = 2;
  run.blind = true;
  run.skipped = 0.4;
  const auto orders = static_cast<uint64_t>(TestRounds(12));
  for (const ToyModel& model : models) {
    for (int world : {1, 2}) {
      const ToyResult want =
          TrainToyReference(model, run, world, 0.05, OptimizerOptions());
      for (uint64_t seed = 1; seed <= orders; ++seed) {
        SCOPED_TRACE(testing::Message()
                     << model.params.size() << " parameters, world " << world
                     << " seed " << seed);
        ShufflingExecutor executor(seed);
        ZeroOptions options = Roomy(static_cast<int>(seed % 4));
        options.executor = &executor;
        options.clip_norm = 0.05;
        run.worker_lanes = static_cast<int>(seed % 3);
        ExpectEqual(TrainToy(model, run, world, options), want);
      }
    }
  }
}

TEST_F(ZeroEngineTest, DigestKnowsWeightsButNotLayoutPlacementOrStage) {
  const ToyModel model = MakeToyModel(5, 20, 1000, DType::kBF16);
  ToyRun run;
  const ToyResult roomy = TrainToy(model, run, 2, Roomy(0));
  ASSERT_THAT(roomy.status, IsOk());
  ZeroOptions other = Tight(3, KiB(64), KiB(120));
  other.chunk_size = KiB(4);
  const ToyResult tight = TrainToy(model, run, 2, other);
  ASSERT_THAT(tight.status, IsOk());
  EXPECT_EQ(roomy.digest, tight.digest);
  run.lr *= 1.001;
  EXPECT_NE(TrainToy(model, run, 2, Roomy(0)).digest, roomy.digest);
}

// Calls `visit` with each moment of a training of this shape, in order.
template <typename Visit>
void ForEachMoment(const ToyModel& model, const ToyRun& run,
                   ZeroOptions options, Visit visit) {
  std::vector<ToyMoment> moments;
  ToyRun listing = run;
  listing.evaluates = [&](const ToyMoment& at) {
    moments.push_back(at);
    return false;
  };
  ASSERT_THAT(TrainToy(model, listing, 1, options).status, IsOk());
  for (size_t i = 0; i < moments.size(); i += TestStride()) visit(moments[i]);
}

bool SamePlace(const ToyMoment& a, const ToyMoment& b) {
  return a.step == b.step && a.micro_batch == b.micro_batch &&
         a.point == b.point && a.param == b.param;
}

TEST_F(ZeroEngineTest, AbandonOrEvaluationAtAnyMomentChangesNoBit) {
  const ToyModel model = MakeToyModel(14, 7, 1500, DType::kBF16);
  ToyRun run;
  run.steps = 2;
  run.micro_batches = 2;
  run.tied = {0};
  run.left_open = 0.2;
  const ToyResult want =
      TrainToyReference(model, run, 2, 0.05, OptimizerOptions());
  for (int stage : {1, 3}) {
    ZeroOptions options = Tight(stage, KiB(160), KiB(120));
    options.clip_norm = 0.05;
    int number = 0;
    ForEachMoment(model, run, Roomy(0), [&](const ToyMoment& moment) {
      ToyRun with = run;
      // Each moment in one stage on a thread, in the other on worker lanes.
      with.worker_lanes = (number++ + stage / 2) % 2 == 0 ? 0 : 2;
      SCOPED_TRACE(
          testing::Message()
          << "stage " << stage << " lanes " << with.worker_lanes << " step "
          << moment.step << " micro-batch " << moment.micro_batch << " point "
          << static_cast<int>(moment.point) << " parameter " << moment.param);
      with.abandons = [&](const ToyMoment& at) {
        return at.attempt == 0 && SamePlace(at, moment);
      };
      ExpectEqual(TrainToy(model, with, 2, options), want);
      with.evaluates = [&](const ToyMoment& at) {
        return SamePlace(at, moment);
      };
      ExpectEqual(TrainToy(model, with, 2, options), want);
    });
    if (HasFatalFailure()) return;
  }
}

TEST_F(ZeroEngineTest, ModelsOfNothingTrainToo) {
  ToyModel model;
  for (int stage : {0, 3}) {
    EXPECT_THAT(TrainToy(model, ToyRun(), 2, Roomy(stage)).status, IsOk());
  }
  model.params = {{"empty", {0, 5}, DType::kF32, true},
                  {"frozen", {200}, DType::kBF16, false}};
  for (int stage : {0, 1, 3}) {
    ExpectEqual(TrainToy(model, ToyRun(), 2, Roomy(stage)),
                TrainToyReference(model, ToyRun(), 2, 0, OptimizerOptions()));
  }
}

}  // namespace
}  // namespace castor
