// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_engine.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/in_process_communicator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/toy_trainer.h"

namespace castor {
namespace {

using testing::HasSubstr;

class ZeroEngineTest : public testing::Test {
 protected:
  ZeroOptions Roomy(int stage) {
    ZeroOptions options;
    options.stage = stage;
    options.executor = &pool_;
    options.log = &log_;
    options.chunk_size = KiB(8);
    options.device_budget = MiB(8);
    options.host_budget = MiB(8);
    return options;
  }

  // The device holds little more than the working set, the host part of the
  // rest.
  ZeroOptions Tight(int stage, Bytes device, Bytes host) {
    ZeroOptions options = Roomy(stage);
    options.device_budget = device;
    options.host_budget = host;
    options.nvme = NvmeOption{nvme_.path(), std::nullopt};
    return options;
  }

  Log log_{[](LogLevel, std::string_view) {}};
  ThreadPool pool_{2};
  TempDir nvme_;
};

void ExpectEqual(const ToyResult& got, const ToyResult& want) {
  ASSERT_THAT(got.status, IsOk());
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (size_t p = 0; p < want.weights.size(); ++p) {
    ASSERT_EQ(got.weights[p], want.weights[p]) << "parameter " << p;
  }
  ASSERT_EQ(got.norms, want.norms);
}

void ExpectWithinBudgets(const ToyResult& result) {
  for (Tier tier : kAllTiers) {
    const TierUse& use = result.stats.tiers[TierIndex(tier)];
    EXPECT_LE(use.peak, use.budget) << TierName(tier);
  }
}

TEST_F(ZeroEngineTest, EveryStageAndWorldEqualsPlainArraysBitByBit) {
  const ToyModel model = MakeToyModel(1, 12, 3000, DType::kF32);
  ToyRun run;
  run.micro_batches = 2;
  for (int world : {1, 2, 3}) {
    const ToyResult want =
        TrainToyReference(model, run, world, 0.01, AdamWOptions());
    for (int stage = 0; stage <= 3; ++stage) {
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

TEST_F(ZeroEngineTest, TightBudgetsWithNvmeChangeNoBit) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(2, 30, 2000, dtype);
    ToyRun run;
    run.micro_batches = 2;
    run.steps = 4;
    for (int world : {1, 2, 3}) {
      const ToyResult want =
          TrainToyReference(model, run, world, 0.02, AdamWOptions());
      for (int stage = 0; stage <= 3; ++stage) {
        for (int depth : {0, 3}) {
          SCOPED_TRACE(testing::Message()
                       << DTypeName(dtype) << " world " << world << " stage "
                       << stage << " prefetch " << depth);
          ZeroOptions options = Tight(stage, KiB(48), KiB(200));
          options.clip_norm = 0.02;
          options.prefetch_depth = depth;
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
}

TEST_F(ZeroEngineTest, FrozenMixedAndOversizeParametersTrainAlongside) {
  ToyModel model = MakeToyModel(3, 16, 1500, DType::kF32);
  for (size_t p = 0; p < model.params.size(); ++p) {
    if (p % 4 == 1) model.params[p].dtype = DType::kBF16;
    if (p % 5 == 2) model.params[p].trainable = false;
  }
  model.params[7].shape = {5000};  // larger than a chunk of 8 KiB
  model.params[8].shape = {40, 150};
  ToyRun run;
  run.micro_batches = 2;
  const ToyResult want = TrainToyReference(model, run, 2, 0.05, AdamWOptions());
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    ZeroOptions options = Tight(stage, KiB(190), KiB(400));
    options.clip_norm = 0.05;
    const ToyResult got = TrainToy(model, run, 2, options);
    ExpectEqual(got, want);
    ExpectWithinBudgets(got);
  }
}

TEST_F(ZeroEngineTest, ParametersNobodyUsedStayAsTheyWere) {
  const ToyModel model = MakeToyModel(4, 10, 800, DType::kF32);
  ToyRun run;
  run.unused = {0, 4, 5, 9};
  for (int stage : {0, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    ZeroOptions options = Roomy(stage);
    options.clip_norm = 0.05;
    const ToyResult got = TrainToy(model, run, 2, options);
    ExpectEqual(got, TrainToyReference(model, run, 2, 0.05, AdamWOptions()));
    ToyRun still;
    still.steps = 0;
    const ToyResult start = TrainToyReference(model, still, 2, 0, {});
    for (int p : run.unused) {
      EXPECT_EQ(got.weights[static_cast<size_t>(p)],
                start.weights[static_cast<size_t>(p)]);
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

TEST_F(ZeroEngineTest, NothingIsAllocatedOrCopiedInSteadyState) {
  const ToyModel model = MakeToyModel(6, 30, 2000, DType::kF32);
  ToyRun run;
  run.steps = 6;
  int64_t after_two = 0;
  run.after_step = [&](ZeroEngine& engine, int step) {
    const EngineStats stats = engine.stats();
    if (step == 1) {
      after_two = stats.tier_allocations;
    } else if (step > 1) {
      EXPECT_EQ(stats.tier_allocations, after_two);
    }
    EXPECT_EQ(stats.engine_copies, Bytes(0));
    EXPECT_EQ(stats.divergences, 0);
  };
  const ToyResult got = TrainToy(model, run, 2, Tight(3, KiB(64), KiB(200)));
  ASSERT_THAT(got.status, IsOk());
  EXPECT_GT(after_two, 0);
}

TEST_F(ZeroEngineTest, PrefetchTurnsGathersOnDemandIntoGathersAhead) {
  const ToyModel model = MakeToyModel(7, 40, 1500, DType::kF32);
  ToyRun run;
  run.steps = 5;
  ZeroOptions options = Tight(3, KiB(96), KiB(800));
  options.prefetch_depth = 0;
  const ToyResult without = TrainToy(model, run, 2, options);
  options.prefetch_depth = 3;
  const ToyResult with = TrainToy(model, run, 2, options);
  ASSERT_THAT(without.status, IsOk());
  ASSERT_THAT(with.status, IsOk());
  EXPECT_EQ(without.digest, with.digest);
  EXPECT_EQ(without.stats.prefetched_gathers, 0);
  // The first step is recorded, all others run by plan.
  EXPECT_GT(with.stats.prefetched_gathers, with.stats.gathers / 2);
}

TEST_F(ZeroEngineTest, WireBytesFollowTheStage) {
  // Elements sent per rank and step: all-gather and reduce-scatter move
  // (W - 1) / W of the chunks each.
  const ToyModel model = MakeToyModel(8, 12, 3000, DType::kF32);
  for (int stage : {1, 2, 3}) {
    ToyRun run;
    run.steps = 1;
    // One gathered copy is never kept: every use gathers, as in the model.
    const ToyResult one = TrainToy(model, run, 2, Roomy(stage));
    run.steps = 2;
    const ToyResult two = TrainToy(model, run, 2, Roomy(stage));
    ASSERT_THAT(one.status, IsOk());
    ASSERT_THAT(two.status, IsOk());
    const Bytes step = two.stats.wire_sent - one.stats.wire_sent;
    const Bytes model_bytes = two.layout.allocated_bytes();
    EXPECT_GE(step, model_bytes / 2 * 2) << "stage " << stage;
    EXPECT_LE(step, model_bytes / 2 * 3 + KiB(4)) << "stage " << stage;
  }
}

TEST_F(ZeroEngineTest, RefusesBudgetsThatCannotServeWhatIsDeclared) {
  const ToyModel model = MakeToyModel(9, 20, 2000, DType::kF32);
  ToyRun run;
  ZeroOptions options = Roomy(3);
  options.device_budget = KiB(15);
  EXPECT_THAT(TrainToy(model, run, 2, options).status,
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("raise the device budget by")));
  options = Roomy(3);
  options.device_budget = KiB(64);
  options.host_budget = KiB(64);
  EXPECT_THAT(TrainToy(model, run, 2, options).status,
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("give an NVMe directory with")));
  options.nvme = NvmeOption{nvme_.path(), KiB(64)};
  EXPECT_THAT(
      TrainToy(model, run, 2, options).status,
      StatusIs(ErrorCode::kInfeasible, HasSubstr("raise the NVMe size by")));
  EXPECT_TRUE(std::filesystem::is_empty(nvme_.path()) ||
              std::distance(std::filesystem::directory_iterator(nvme_.path()),
                            std::filesystem::directory_iterator()) <= 1)
      << "a refused configuration leaves no run directory behind";
}

// What a run leaves of its files, by path.
std::vector<std::filesystem::path> FilesUnder(
    const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file() && entry.file_size() > 4096) {
      files.push_back(entry.path());
    }
  }
  return files;
}

TEST_F(ZeroEngineTest, ACorruptedDriveEndsBothRanksWithAnErrorAndNoHang) {
  const ToyModel model = MakeToyModel(11, 30, 2000, DType::kF32);
  ToyRun run;
  run.steps = 6;
  run.after_step = [&](ZeroEngine&, int step) {
    if (step != 2) return;
    // One of the two ranks' files is overwritten behind the engine's back.
    const std::vector<std::filesystem::path> files = FilesUnder(nvme_.path());
    ASSERT_FALSE(files.empty());
    std::ofstream file(files[0], std::ios::in | std::ios::binary);
    const std::string garbage(std::filesystem::file_size(files[0]), '!');
    file.write(garbage.data(), static_cast<std::streamsize>(garbage.size()));
  };
  const ToyResult got = TrainToy(model, run, 2, Tight(3, KiB(48), KiB(120)));
  EXPECT_THAT(got.status,
              StatusIs(ErrorCode::kDataLoss, HasSubstr("of chunk")));
  EXPECT_TRUE(FilesUnder(nvme_.path()).empty()) << "files are removed even so";
}

TEST_F(ZeroEngineTest, ATruncatedFileEndsTheRunWithAnErrorAndNoHang) {
  const ToyModel model = MakeToyModel(12, 30, 2000, DType::kF32);
  ToyRun run;
  run.steps = 6;
  run.after_step = [&](ZeroEngine&, int step) {
    if (step != 2) return;
    for (const std::filesystem::path& file : FilesUnder(nvme_.path())) {
      std::filesystem::resize_file(file, 0);
    }
  };
  const ToyResult got = TrainToy(model, run, 1, Tight(3, KiB(48), KiB(120)));
  EXPECT_FALSE(got.status.ok());
  EXPECT_THAT(std::string(got.status.message()), HasSubstr("of chunk"));
}

TEST_F(ZeroEngineTest, TwoRunsOnOneDirectoryDoNotTouchEachOther) {
  const ToyModel model = MakeToyModel(13, 30, 2000, DType::kF32);
  ToyRun run;
  const ToyResult alone = TrainToy(model, run, 2, Roomy(0));
  std::vector<ToyResult> results(2);
  std::vector<std::thread> threads;
  for (ToyResult& result : results) {
    threads.emplace_back(
        [&] { result = TrainToy(model, run, 2, Tight(3, KiB(48), KiB(120))); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ToyResult& result : results) {
    ASSERT_THAT(result.status, IsOk());
    EXPECT_EQ(result.digest, alone.digest);
  }
  EXPECT_TRUE(FilesUnder(nvme_.path()).empty());
}

// One rank on the one-rank communicator, driven call by call.
class OneRankEngineTest : public ZeroEngineTest {
 protected:
  OneRankEngineTest() {
    InProcessOptions in_process;
    in_process.executor = &pool_;
    world_ = MakeInProcessWorld(in_process);
  }

  // An engine with `count` fp32 parameters of 1,024 elements, chunks of two.
  void Open(ZeroOptions options, int count) {
    Result<std::unique_ptr<ZeroEngine>> made =
        ZeroEngine::Create(options, world_[0].get());
    ASSERT_THAT(made, IsOk());
    engine_ = *std::move(made);
    for (int p = 0; p < count; ++p) {
      Result<ParamId> id = engine_->Register(
          {"p" + std::to_string(p), {1024}, DType::kF32, true},
          [p](int64_t begin, int64_t end, float* out) {
            for (int64_t i = begin; i < end; ++i) {
              out[i - begin] = static_cast<float>(p * 1024 + i);
            }
          });
      ASSERT_THAT(id, IsOk());
      ids_.push_back(*id);
    }
  }

  void ExpectInitialValues(int p) {
    std::vector<float> values(1024);
    ASSERT_THAT(engine_->ReadParam(ids_[static_cast<size_t>(p)], values),
                IsOk());
    for (int i = 0; i < 1024; ++i) {
      ASSERT_EQ(values[static_cast<size_t>(i)],
                static_cast<float>(p * 1024 + i));
    }
  }

  // Gives every parameter a gradient of ones.
  void Backward(const std::vector<int>& params) {
    for (int p : params) {
      const ParamId id = ids_[static_cast<size_t>(p)];
      Result<void*> grad = engine_->Grad(id, lane_);
      ASSERT_THAT(grad, IsOk());
      lane_.Run([&] {
        for (int i = 0; i < 1024; ++i) static_cast<float*>(*grad)[i] += 1;
        return OkStatus();
      });
      ASSERT_THAT(engine_->GradReady(id, lane_), IsOk());
    }
  }

  std::vector<std::unique_ptr<Communicator>> world_;
  ThreadLane lane_{"compute"};
  std::vector<ParamId> ids_;
  std::unique_ptr<ZeroEngine> engine_;
};

TEST_F(OneRankEngineTest, RefusesOptionsWithoutMeaning) {
  ZeroOptions options = Roomy(4);
  EXPECT_THAT(ZeroEngine::Create(options, world_[0].get()).status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("stage 4")));
  options = Roomy(3);
  options.clip_norm = -1;
  EXPECT_THAT(ZeroEngine::Create(options, world_[0].get()).status(),
              StatusIs(ErrorCode::kInvalidArgument));
  options = Roomy(3);
  options.align = Elements(63);
  EXPECT_THAT(ZeroEngine::Create(options, world_[0].get()).status(),
              StatusIs(ErrorCode::kInvalidArgument));
}

TEST_F(OneRankEngineTest, CallsOutOfOrderAreRefusedAndHarmNothing) {
  Open(Roomy(3), 4);
  EXPECT_THAT(engine_->Acquire(ids_, lane_).status(),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("Seal")));
  ASSERT_THAT(engine_->Seal({}), IsOk());
  EXPECT_THAT(engine_->Seal({}), StatusIs(ErrorCode::kFailedPrecondition));
  EXPECT_THAT(engine_->Register({"late", {4}, DType::kF32, true}, {}).status(),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("late")));
  EXPECT_THAT(engine_->Step(0.1).status(),
              StatusIs(ErrorCode::kFailedPrecondition));
  EXPECT_THAT(engine_->Grad(ids_[0], lane_).status(),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("p0")));
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  EXPECT_THAT(
      engine_->GradReady(ids_[0], lane_),
      StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("Grad first")));
  Backward({0});
  EXPECT_THAT(engine_->Grad(ids_[0], lane_).status(),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("already")));
  EXPECT_THAT(engine_->BeginMicroBatch(false),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("last")));
  {
    Result<ParamLease> lease = engine_->Acquire(std::span(&ids_[0], 1), lane_);
    ASSERT_THAT(lease, IsOk());
    EXPECT_THAT(engine_->Step(0.1).status(),
                StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("held")));
    EXPECT_THAT(engine_->Close(),
                StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("held")));
  }
  EXPECT_THAT(engine_->Step(-1).status(),
              StatusIs(ErrorCode::kInvalidArgument));
  ExpectInitialValues(3);
  EXPECT_THAT(engine_->Step(0.1), IsOk());
  EXPECT_THAT(engine_->Close(), IsOk());
  EXPECT_THAT(engine_->Acquire(ids_, lane_).status(),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("closed")));
}

TEST_F(OneRankEngineTest, AnUndeclaredNeedFailsAtTheAcquireThatShowsIt) {
  ZeroOptions options = Roomy(3);
  options.device_budget = KiB(40);
  options.prefetch_depth = 0;
  Open(options, 16);
  SealOptions declared;
  declared.held = {{{ids_[0]}, {}}, {{ids_[0]}, {ids_[0], ids_[1]}}};
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  std::vector<ParamLease> leases;
  Status status;
  for (const ParamId& id : ids_) {
    Result<ParamLease> lease = engine_->Acquire(std::span(&id, 1), lane_);
    status = lease.status();
    if (!lease.ok()) break;
    leases.push_back(*std::move(lease));
  }
  EXPECT_THAT(status, StatusIs(ErrorCode::kInfeasible,
                               HasSubstr("chunk 0 (parameters)")));
  // What is held stays good, and room made serves the next.
  EXPECT_EQ(leases[0].f32(0)[5], 5.0f);
  leases.pop_back();
  EXPECT_THAT(engine_->Acquire(std::span(&ids_[15], 1), lane_), IsOk());
}

TEST_F(OneRankEngineTest, AbandonForgetsTheStepAndKeepsTheWeights) {
  ZeroOptions options = Roomy(3);
  options.clip_norm = 1;
  Open(options, 6);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(false), IsOk());
  Backward({5, 4, 3});
  ASSERT_THAT(engine_->Grad(ids_[1], lane_), IsOk());  // left open
  ASSERT_THAT(engine_->Abandon(), IsOk());
  for (int p = 0; p < 6; ++p) ExpectInitialValues(p);
  EXPECT_THAT(engine_->Step(0.1).status(),
              StatusIs(ErrorCode::kFailedPrecondition));
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  Backward({5, 4, 3, 2, 1, 0});
  Result<StepResult> step = engine_->Step(0.1);
  ASSERT_THAT(step, IsOk());
  // 6 x 1024 ones, not counting what was abandoned.
  EXPECT_EQ(step->grad_norm, std::sqrt(6.0 * 1024.0));
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(OneRankEngineTest, AnInfiniteGradientSkipsTheUpdateAndChangesNoBit) {
  ZeroOptions options = Roomy(3);
  options.clip_norm = 1;
  Open(options, 4);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  Backward({3, 2});
  Result<void*> grad = engine_->Grad(ids_[1], lane_);
  ASSERT_THAT(grad, IsOk());
  static_cast<float*>(*grad)[77] = std::numeric_limits<float>::infinity();
  ASSERT_THAT(engine_->GradReady(ids_[1], lane_), IsOk());
  Result<StepResult> step = engine_->Step(0.1);
  ASSERT_THAT(step, IsOk());
  EXPECT_FALSE(step->applied);
  for (int p = 0; p < 4; ++p) ExpectInitialValues(p);
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(OneRankEngineTest, EvaluationIsNeitherTracedNorADivergence) {
  Open(Tight(3, KiB(48), KiB(100)), 12);
  SealOptions declared;
  declared.held = {{{ids_[0], ids_[2]}, {ids_[0], ids_[1]}}};
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  const auto evaluate = [&](int stride) {
    Result<EvaluateScope> scope = engine_->Evaluate();
    ASSERT_THAT(scope, IsOk());
    for (int p = 11; p >= 0; p -= stride) {
      Result<ParamLease> lease =
          engine_->Acquire(std::span(&ids_[static_cast<size_t>(p)], 1), lane_);
      ASSERT_THAT(lease, IsOk());
      EXPECT_THAT(engine_->Grad(ids_[0], lane_).status(),
                  StatusIs(ErrorCode::kFailedPrecondition));
    }
  };
  for (int step = 0; step < 5; ++step) {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    for (int p = 0; p < 12; ++p) {
      ASSERT_THAT(
          engine_->Acquire(std::span(&ids_[static_cast<size_t>(p)], 1), lane_),
          IsOk());
      if (p == 6) evaluate(1 + step % 3);
    }
    Backward({11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
    ASSERT_THAT(engine_->Step(0.0), IsOk());
    evaluate(1);
  }
  EXPECT_EQ(engine_->stats().divergences, 0);
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(OneRankEngineTest, AStepThatDepartsFromTheTraceGivesRightValues) {
  ZeroOptions options = Tight(3, KiB(48), KiB(100));
  options.optimizer.weight_decay = 0;
  Open(options, 12);
  SealOptions declared;
  declared.held = {{{ids_[0], ids_[2]}, {ids_[0], ids_[1]}}};
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  for (int step = 0; step < 6; ++step) {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    for (int i = 0; i < 12; ++i) {
      // Step 3 walks in another order, and step 4 skips half.
      if (step == 4 && i % 2 == 0) continue;
      const size_t p = static_cast<size_t>(step == 3 ? (i * 5) % 12 : i);
      Result<ParamLease> lease =
          engine_->Acquire(std::span(&ids_[p], 1), lane_);
      ASSERT_THAT(lease, IsOk());
      // A zero learning rate leaves initial values to check against.
      ASSERT_EQ(lease->f32(0)[100], static_cast<float>(p * 1024 + 100));
    }
    Backward({1, 0});
    ASSERT_THAT(engine_->Step(0.0), IsOk());
  }
  EXPECT_EQ(engine_->stats().divergences, 3) << "steps 3, 4 and 5";
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(OneRankEngineTest, LeasesAreBorrowedWithinWhatWasDeclared) {
  Open(Roomy(3), 4);
  SealOptions declared;
  declared.largest_lease = KiB(8);
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  Result<MemoryLease> a = engine_->Borrow(KiB(4), lane_);
  Result<MemoryLease> b = engine_->Borrow(KiB(4), lane_);
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  EXPECT_GE(std::abs(a->data() - b->data()), 4096);
  EXPECT_THAT(engine_->Borrow(Bytes(1), lane_).status(),
              StatusIs(ErrorCode::kTierFull, HasSubstr("on lease")));
  a->Release();
  EXPECT_THAT(engine_->Borrow(KiB(3), lane_), IsOk());
  EXPECT_THAT(engine_->Close(),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("held")));
  b->Release();
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(ZeroEngineTest, RanksThatRegisterDifferentModelsLearnSo) {
  InProcessOptions in_process;
  in_process.world = 2;
  in_process.executor = &pool_;
  std::vector<std::unique_ptr<Communicator>> world =
      MakeInProcessWorld(in_process);
  std::vector<Status> statuses(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const ToyModel model =
          MakeToyModel(10, 6, r == 0 ? 900 : 901, DType::kF32);
      statuses[r] =
          TrainToyRank(model, ToyRun(), Roomy(3), world[r].get()).status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(statuses[0], StatusIs(ErrorCode::kInvalidArgument,
                                    HasSubstr("different parameters")));
  EXPECT_THAT(statuses[1], StatusIs(ErrorCode::kInvalidArgument,
                                    HasSubstr("different parameters")));
}

}  // namespace
}  // namespace castor
