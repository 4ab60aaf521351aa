// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_engine.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/trace/trace_file.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::HasSubstr;

auto NotNow(const std::string& why) {
  return StatusIs(ErrorCode::kFailedPrecondition, HasSubstr(why));
}

TEST_F(OneRankEngineTest, RefusesOptionsWithoutMeaning) {
  ZeroOptions options = Roomy(4);
  EXPECT_THAT(ZeroEngine::Create(options, world_[0].get()).status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("stage 4")));
  options = Roomy(3);
  options.clip_norm = -1;
  EXPECT_THAT(ZeroEngine::Create(options, world_[0].get()).status(),
              StatusIs(ErrorCode::kInvalidArgument));
  options.clip_norm = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(ZeroEngine::Create(options, world_[0].get()).status(),
              StatusIs(ErrorCode::kInvalidArgument));
  options = Roomy(3);
  options.optimizer.beta2 = 1;
  EXPECT_THAT(ZeroEngine::Create(options, world_[0].get()).status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("betas")));
  options = Roomy(3);
  options.align = Elements(63);
  EXPECT_THAT(ZeroEngine::Create(options, world_[0].get()).status(),
              StatusIs(ErrorCode::kInvalidArgument));
}

TEST_F(ZeroEngineTest, EveryRankRecordsTheSameTrace) {
  const ToyModel model = MakeToyModel(21, 20, 1500, DType::kBF16);
  std::mutex mutex;
  std::vector<TraceFile> traces;
  ToyRun run;
  run.steps = 2;
  run.between_steps = [&](ZeroEngine& engine, int) {
    TraceFile trace = engine.RecordedTrace();
    EXPECT_EQ(std::exchange(trace.rank, 0), engine.rank());
    std::lock_guard lock(mutex);
    traces.push_back(std::move(trace));
    return OkStatus();
  };
  ASSERT_THAT(TrainToy(model, run, 3, Tight(3, KiB(96), KiB(200))).status,
              IsOk());
  ASSERT_EQ(traces.size(), 3u);
  EXPECT_EQ(traces[1], traces[0]);
  EXPECT_EQ(traces[2], traces[0]);
  // The toy trainer goes forward through all of them.
  std::vector<std::string> names;
  for (const ParamSpec& spec : model.params) names.push_back(spec.name);
  EXPECT_EQ(traces[0].params, names);
  EXPECT_GT(traces[0].step.accesses.size(), 40u);
}

TEST_F(OneRankEngineTest, NamesParametersInTheOrderOfTheirFirstUse) {
  Open(Roomy(3), 6);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  {
    Result<EvaluateScope> scope = engine_->Evaluate();
    ASSERT_THAT(scope, IsOk());
    ASSERT_THAT(Acquire(5), IsOk());
  }
  for (int p : {4, 1, 4, 3}) ASSERT_THAT(Acquire(p), IsOk());
  Backward({1, 3, 4});
  ASSERT_THAT(engine_->Step(0.1), IsOk());
  EXPECT_THAT(engine_->RecordedTrace().params,
              testing::ElementsAre("p4", "p1", "p3", "p0", "p2", "p5"));
}

TEST_F(OneRankEngineTest, CallsOutOfOrderAreRefusedAndHarmNothing) {
  Open(Roomy(3), 4);
  EXPECT_THAT(engine_->Acquire(ids_, lane_).status(), NotNow("Seal"));
  ASSERT_THAT(engine_->Seal({}), IsOk());
  EXPECT_THAT(engine_->Seal({}), StatusIs(ErrorCode::kFailedPrecondition));
  EXPECT_THAT(engine_->Register({"late", {4}, DType::kF32, true}, {}).status(),
              NotNow("late"));
  EXPECT_THAT(engine_->Step(0.1).status(),
              StatusIs(ErrorCode::kFailedPrecondition));
  EXPECT_THAT(engine_->Grad(ids_[0], lane_).status(), NotNow("p0"));
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  EXPECT_THAT(engine_->GradReady(ids_[0], lane_), NotNow("Grad() first"));
  Backward({0});
  EXPECT_THAT(engine_->Grad(ids_[0], lane_).status(), NotNow("already"));
  {
    Result<ParamLease> lease = engine_->Acquire(std::span(&ids_[0], 1), lane_);
    ASSERT_THAT(lease, IsOk());
    EXPECT_THAT(engine_->Step(0.1).status(), NotNow("held"));
    EXPECT_THAT(engine_->Close(), NotNow("held"));
  }
  for (double lr : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                    std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(engine_->Step(lr).status(),
                StatusIs(ErrorCode::kInvalidArgument));
  }
  ExpectInitialValues(3);
  EXPECT_THAT(engine_->Step(0.1), IsOk());
  EXPECT_THAT(engine_->Close(), IsOk());
  EXPECT_THAT(engine_->Acquire(ids_, lane_).status(), NotNow("closed"));
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

TEST_F(OneRankEngineTest, AStepThatWasSkippedLeavesNoTraceInTheNext) {
  ZeroOptions options = Roomy(3);
  options.clip_norm = 1;
  std::vector<uint64_t> digests;
  for (bool skips : {false, true}) {
    ids_.clear();
    Open(options, 4);
    ASSERT_THAT(engine_->Seal({}), IsOk());
    for (int step = 0; step < 3; ++step) {
      if (skips) {
        ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
        Backward({3, 2});
        Result<void*> grad = engine_->Grad(ids_[1], lane_);
        ASSERT_THAT(grad, IsOk());
        static_cast<float*>(*grad)[5] = std::numeric_limits<float>::quiet_NaN();
        ASSERT_THAT(engine_->GradReady(ids_[1], lane_), IsOk());
        Result<StepResult> skipped = engine_->Step(0.1);
        ASSERT_THAT(skipped, IsOk());
        EXPECT_FALSE(skipped->applied);
        EXPECT_EQ(skipped->not_finite, ids_[1]);
      }
      ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
      Backward({3, 2, 1, 0});
      Result<StepResult> made = engine_->Step(0.1);
      ASSERT_THAT(made, IsOk());
      EXPECT_TRUE(made->applied);
      EXPECT_FALSE(made->not_finite.valid());
      EXPECT_EQ(made->grad_norm, std::sqrt(4.0 * 1024.0));
    }
    Result<uint64_t> digest = engine_->WeightDigest();
    ASSERT_THAT(digest, IsOk());
    digests.push_back(*digest);
    ASSERT_THAT(engine_->Close(), IsOk());
  }
  EXPECT_EQ(digests[0], digests[1]);
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

// Serves tasks when it is let, and keeps them until then.
class PausedExecutor final : public Executor {
 public:
  explicit PausedExecutor(Executor* executor) : executor_(executor) {}

  void Post(Task task) override {
    std::lock_guard lock(mutex_);
    if (paused_) {
      kept_.push_back(std::move(task));
    } else {
      executor_->Post(std::move(task));
    }
  }
  void Pause() {
    std::lock_guard lock(mutex_);
    paused_ = true;
  }
  // Returns how many tasks had to wait.
  size_t GoOn() {
    std::lock_guard lock(mutex_);
    paused_ = false;
    for (Task& task : kept_) executor_->Post(std::move(task));
    return std::exchange(kept_, {}).size();
  }

 private:
  Executor* const executor_;
  std::mutex mutex_;
  bool paused_ = false;  // guarded by mutex_, as the next
  std::vector<Task> kept_;
};

// No call on the way through a step waits for work: none ends while they are
// made (OSLO, Gemini's monitor and FSDP's limiter hold up the host, defect B4).
TEST_F(OneRankEngineTest, NothingIsWaitedForBetweenTheBordersOfAStep) {
  for (bool updates_early : {false, true}) {
    SCOPED_TRACE(testing::Message() << "updates early: " << updates_early);
    PausedExecutor executor(&pool_);
    InProcessOptions in_process;
    in_process.executor = &executor;
    world_ = MakeInProcessWorld(in_process);
    ids_.clear();
    ZeroOptions options = Tight(3, KiB(48), KiB(100));
    options.executor = &executor;
    options.optimizer = DefaultOptimizerOptions(OptimizerKind::kSgd);
    Open(options, 8);
    ASSERT_THAT(engine_->Seal({}), IsOk());
    WorkerLane lane("compute", &executor);
    // A lane that is served when the pause begins goes on, and posts nothing:
    // in some steps nothing may have to wait.
    size_t waited = 0;
    for (int step = 0; step < 3; ++step) {
      executor.Pause();
      ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
      if (updates_early) {
        ASSERT_THAT(engine_->UpdateEarly(0.5), IsOk());
      }
      for (const ParamId& id : ids_) {
        ASSERT_THAT(engine_->Acquire(std::span(&id, 1), lane), IsOk());
      }
      for (size_t p = ids_.size(); p-- > 0;) {
        const Result<void*> grad = engine_->Grad(ids_[p], lane);
        ASSERT_THAT(grad, IsOk());
        lane.Run([to = static_cast<float*>(*grad)] {
          std::fill(to, to + 1024, 1.0f);
          return OkStatus();
        });
        ASSERT_THAT(engine_->GradReady(ids_[p], lane), IsOk());
      }
      waited += executor.GoOn();
      ASSERT_THAT(engine_->Step(0.5), IsOk());
    }
    EXPECT_GT(waited, 0u);
    std::vector<float> values(1024);
    ASSERT_THAT(engine_->ReadParam(ids_[3], values), IsOk());
    EXPECT_EQ(values[7], 3.0f * 1024 + 7 - 3 * 0.5f);
    ASSERT_THAT(lane.Drain(), IsOk());
    ASSERT_THAT(engine_->Close(), IsOk());
    engine_.reset();
  }
}

// PatrickStar and Gemini fail where a step is not the first one's (defect B8).
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

TEST_F(OneRankEngineTest, NothingEndsAStepInsideAnEvaluation) {
  Open(Roomy(3), 4);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  Backward({1, 0});
  ASSERT_THAT(engine_->Grad(ids_[2], lane_), IsOk());
  {
    Result<EvaluateScope> scope = engine_->Evaluate();
    ASSERT_THAT(scope, IsOk());
    const auto refused = NotNow("evaluation");
    EXPECT_THAT(engine_->GradReady(ids_[2], lane_), refused);
    EXPECT_THAT(engine_->Step(0.1).status(), refused);
    EXPECT_THAT(engine_->Abandon(), refused);
    EXPECT_THAT(engine_->Close(), refused);
  }
  EXPECT_THAT(engine_->GradReady(ids_[2], lane_), IsOk());
  EXPECT_THAT(engine_->Step(0.1), IsOk());
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(OneRankEngineTest, LeasesMayCrossTheBordersOfAnEvaluation) {
  Open(Tight(3, KiB(48), KiB(100)), 12);
  SealOptions declared;
  declared.held = {{{ids_[0], ids_[2]}, {ids_[0], ids_[1]}}};
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  for (int step = 0; step < 4; ++step) {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    {
      Result<ParamLease> before = Acquire(3);
      ASSERT_THAT(before, IsOk());
      Result<EvaluateScope> scope = engine_->Evaluate();
      ASSERT_THAT(scope, IsOk());
      before->Release();
      Result<ParamLease> inside = Acquire(7);
      ASSERT_THAT(inside, IsOk());
      scope->End();
      EXPECT_EQ(inside->f32(0)[1], 7 * 1024 + 1.0f);
    }
    Backward({11, 10, 1, 0});
    EXPECT_THAT(engine_->Step(0.0), IsOk());
  }
  EXPECT_EQ(engine_->stats().divergences, 0);
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(OneRankEngineTest, ARefusedAcquireOrGradIsAsIfItHadNotBeen) {
  ZeroOptions options = Tight(3, KiB(32), KiB(100));
  options.prefetch.depth = 0;
  Open(options, 12);
  SealOptions declared;
  declared.held = {{{ids_[0], ids_[2]}, {ids_[0], ids_[1]}}};
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  for (int step = 0; step < 3; ++step) {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    {
      // More than there are slots.
      std::vector<ParamLease> leases;
      Status status;
      for (int p = 0; p < 12 && status.ok(); p += 2) {
        Result<ParamLease> lease = Acquire(p);
        status = lease.status();
        if (lease.ok()) leases.push_back(*std::move(lease));
      }
      EXPECT_THAT(status, StatusIs(ErrorCode::kInfeasible));
      EXPECT_THAT(engine_->Grad(ids_[11], lane_).status(),
                  StatusIs(ErrorCode::kInfeasible));
    }
    Backward({11, 10, 1, 0});
    ASSERT_THAT(engine_->Step(0.0), IsOk());
  }
  for (int p = 0; p < 12; ++p) ExpectInitialValues(p);
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(OneRankEngineTest, CloseWaitsForWorkOnWhatWasGivenBack) {
  ZeroOptions options = Tight(3, KiB(48), KiB(100));
  WorkerLane slow("slow", &pool_);
  Open(options, 6);
  SealOptions declared;
  declared.held = {{{ids_[0], ids_[2]}, {ids_[0], ids_[1]}}};
  declared.largest_lease = KiB(4);
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  std::atomic<float> seen = 0;
  std::atomic<int> lent = 0;
  {
    Result<EvaluateScope> scope = engine_->Evaluate();
    ASSERT_THAT(scope, IsOk());
    Result<ParamLease> lease = engine_->Acquire(std::span(&ids_[2], 1), slow);
    ASSERT_THAT(lease, IsOk());
    Result<MemoryLease> memory = engine_->Borrow(KiB(4), slow);
    ASSERT_THAT(memory, IsOk());
    slow.Run([&, values = lease->f32(0)] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      seen = values[5];
      return OkStatus();
    });
    lease->Release();
    slow.Run([&, data = memory->data()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      data[4095] = std::byte{7};
      lent = static_cast<int>(data[4095]);
      return OkStatus();
    });
  }
  EXPECT_THAT(engine_->Close(), IsOk());
  EXPECT_EQ(seen, 2 * 1024 + 5.0f);
  EXPECT_EQ(lent, 7);
}

}  // namespace
}  // namespace castor
