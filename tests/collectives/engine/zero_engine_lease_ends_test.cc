// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Leases that end where chance has it on each rank, as a garbage collector
// does, and steps that hold more than anybody declared.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <numeric>
#include <ostream>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"
#include "placement/trace/trace_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

class ZeroEngineLeaseEndsTest : public ZeroEngineTest {};

struct Case {
  int world = 1;
  int stage = 0;
  bool declares = false;
  bool planned = false;
  int micro_batches = 1;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "world " << c.world << ", stage " << c.stage << ", declares "
             << c.declares << ", planned policy " << c.planned
             << ", micro-batches " << c.micro_batches;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (int world = 1; world <= 3; ++world) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const bool declares : {false, true}) {
        for (const bool planned : {false, true}) {
          for (const int micro_batches : {1, 2}) {
            cases.push_back({world, stage, declares, planned, micro_batches});
          }
        }
      }
    }
  }
  return cases;
}

TEST_F(ZeroEngineLeaseEndsTest, AtRandomPerRankEqualsPlainArrays) {
  uint64_t seed = TestSeed(61);
  int64_t combination = 0;
  int64_t extra = 0;
  int64_t divergences = 0;
  int64_t own_ends = 0;
  for (const Case& c : Cases()) {
    if (combination++ % TestStride() != 0) continue;
    SCOPED_TRACE(testing::Message() << "seed " << ++seed << ": " << c);
    const ToyModel model = MakeToyModel(
        seed, 14, 2500, seed % 2 == 0 ? DType::kF32 : DType::kBF16);
    ToyRun run;
    run.steps = 5;
    run.micro_batches = c.micro_batches;
    run.seed = seed;
    run.keeps = seed % 3 == 0 ? 0.6 : 0.2;
    run.grows = true;
    run.declares = c.declares;
    run.worker_lanes = static_cast<int>(seed % 3);
    run.tied = {3};
    // Not every step is the recorded one.
    if (seed % 4 == 0) run.skipped = 0.1;
    if (seed % 5 == 0) {
      run.evaluates = [](const ToyMoment& at) {
        return at.step % 2 == 1 && at.param == 6;
      };
    }
    if (seed % 5 == 1) {
      run.abandons = [](const ToyMoment& at) {
        return at.step == 2 && at.attempt == 0 && at.param == 4 &&
               at.point == ToyPoint::kBackward;
      };
    }
    std::atomic<int64_t> told = 0;
    run.between_steps = [&told](ZeroEngine& engine, int) {
      const TraceFile trace = engine.RecordedTrace();
      told += std::ssize(trace.step.lease_ends);
      return ValidateStep(trace.step, trace.chunks.size());
    };
    // Slots for what is declared, and room for those that are kept.
    ZeroOptions options = Tight(c.stage, KiB(8) * 60, MiB(1));
    options.own_lease_ends = true;
    options.keep_copies = false;
    options.prefetch.depth = static_cast<int>(seed % 4);
    if (c.planned) options.policy = PlanPolicy::kPlanned;
    if (seed % 7 == 0) options.clip_norm = 0.05;
    options.home_limits.emplace();
    ToyResult got = TrainToy(model, run, c.world, options);
    ExpectEqual(got, TrainToyReference(model, run, c.world, options));
    ExpectWithinBudgets(got);
    extra += got.stats.extra_slots;
    own_ends += told;
    divergences += got.stats.divergences;
    if (run.skipped == 0 && !run.abandons) {
      EXPECT_EQ(got.stats.divergences, 0) << "only ends differ";
    }
    if (HasFatalFailure()) return;
  }
  if (TestStride() == 1) {
    EXPECT_GT(extra, 0);
    EXPECT_GT(divergences, 0);
    EXPECT_GT(own_ends, 0);
  }
}

struct Variation {
  const char* name;
  std::function<void(ToyModel& model, ToyRun& run, ZeroOptions& options,
                     int& world)>
      tune;
};

std::vector<Variation> Variations() {
  return {
      {"gradients in place of parameters",
       [](ToyModel& model, ToyRun& run, ZeroOptions& options, int&) {
         for (ParamSpec& spec : model.params) spec.dtype = DType::kBF16;
         options.grad_mode = GradMode::kReuse;
         run.tied.clear();
       }},
      {"ranks that lack gradients",
       [](ToyModel&, ToyRun& run, ZeroOptions&, int&) {
         run.missing = 0.3;
         run.acquires_all = true;
         run.tied.clear();
       }},
      {"early updates",
       [](ToyModel&, ToyRun& run, ZeroOptions&, int&) {
         run.updates_early = true;
         run.tied.clear();
       }},
      {"groups of ranks",
       [](ToyModel&, ToyRun&, ZeroOptions& options, int& world) {
         world = 4;
         options.shard_group = 2;
       }},
      {"parked between steps, with slots that were made",
       [](ToyModel&, ToyRun& run, ZeroOptions&, int&) {
         run.declares = false;
         run.between_steps = [](ZeroEngine& engine, int) {
           const Result<ParkResult> parked = engine.Park(Tier::kHost);
           EXPECT_THAT(parked, IsOk());
           return engine.Resume();
         };
       }},
      {"placed anew by what was held",
       [](ToyModel&, ToyRun& run, ZeroOptions&, int&) {
         run.declares = false;
         run.between_steps = [](ZeroEngine& engine, int step) {
           if (step > 0) return OkStatus();
           ResealOptions options;
           options.declared.grow = true;
           return engine.Reseal(options);
         };
       }},
      {"frozen parameters",
       [](ToyModel& model, ToyRun&, ZeroOptions&, int&) {
         for (size_t p = 0; p < model.params.size(); p += 3) {
           if (p != 3) model.params[p].trainable = false;
         }
       }},
      {"copies that stay",
       [](ToyModel&, ToyRun&, ZeroOptions& options, int&) {
         options.keep_copies = true;
         options.device_budget = KiB(8) * 48;
       }},
      {"homes on the device",
       [](ToyModel&, ToyRun&, ZeroOptions& options, int&) {
         options.home_limits.reset();
         options.device_budget = KiB(8) * 40;
       }},
  };
}

TEST_F(ZeroEngineLeaseEndsTest, WhateverElseAStepDoesEqualsPlainArrays) {
  uint64_t seed = TestSeed(710);
  int64_t grown = 0;
  for (const Variation& variation : Variations()) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (int round = 0; round < TestRounds(4); ++round) {
        SCOPED_TRACE(testing::Message()
                     << "seed " << ++seed << ": " << variation.name
                     << ", stage " << stage);
        ToyModel model = MakeToyModel(seed, 12, 2500, DType::kF32);
        ToyRun run;
        run.steps = 4;
        run.seed = seed;
        run.keeps = 0.3;
        run.grows = true;
        run.tied = {3};
        int world = 2;
        ZeroOptions options = Tight(stage, KiB(8) * 60, MiB(1));
        options.own_lease_ends = true;
        options.keep_copies = false;
        options.home_limits.emplace();
        variation.tune(model, run, options, world);
        if (options.shard_group > 0 && stage != 3) continue;
        ToyResult got = TrainToy(model, run, world, options);
        ExpectEqual(got, TrainToyReference(model, run, world, options));
        ExpectWithinBudgets(got);
        if (HasFatalFailure()) return;
        grown += got.stats.grown_slots;
      }
    }
  }
  EXPECT_GT(grown, 0);
}

// As threads do that read a model which another thread trains.
TEST_F(OneRankEngineTest, LeasesThatTakeAllSlotsAreRefusedOnceNotForGood) {
  for (const bool evaluates : {false, true}) {
    SCOPED_TRACE(testing::Message() << "evaluates " << evaluates);
    ids_.clear();
    ZeroOptions options = Tight(3, KiB(40), KiB(400));
    options.own_lease_ends = true;
    options.keep_copies = false;
    options.home_limits.emplace();
    Open(options, 16);  // eight chunks
    SealOptions declared;
    declared.grow = true;
    declared.held = {{{ids_[0], ids_[2]}, {ids_[0], ids_[1]}}};
    ASSERT_THAT(engine_->Seal(declared), IsOk());
    std::vector<int> backward(16);
    std::iota(backward.rbegin(), backward.rend(), 0);
    const auto step = [&] {
      for (int p = 0; p < 16; ++p) ASSERT_THAT(Acquire(p), IsOk());
      Backward(backward);
      ASSERT_THAT(engine_->Step(0.0), IsOk());
    };
    for (int i = 0; i < 2; ++i) {
      ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
      step();
    }
    int refused = 0;
    for (size_t held = 1; held <= 8; ++held) {
      std::vector<ParamLease> leases;
      ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
      EvaluateScope scope;
      if (evaluates) {
        Result<EvaluateScope> begun = engine_->Evaluate();
        ASSERT_THAT(begun, IsOk());
        scope = *std::move(begun);
      }
      for (int p = 0; p < 16; ++p) {
        Result<ParamLease> lease = Acquire(p);
        if (!lease.ok()) {
          ASSERT_THAT(lease, StatusIs(ErrorCode::kInfeasible));
          ++refused;
          break;
        }
        if (p % 2 == 0 && leases.size() < held) {
          leases.push_back(*std::move(lease));
        }
      }
      scope = EvaluateScope();
      // Some end before the step is given up, and some behind it.
      leases.resize(leases.size() / 2);
      ASSERT_THAT(engine_->Abandon(), IsOk());
      if (held % 2 == 0) leases.clear();
      ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
      leases.clear();
      step();
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(refused, 0);
    ExpectInitialValues(1);
    ASSERT_THAT(engine_->Close(), IsOk());
    engine_.reset();
    InProcessOptions in_process;
    in_process.executor = &pool_;
    world_ = MakeInProcessWorld(in_process);
  }
}

// Of a planned step, whose trace has the end that all ranks follow.
TEST_F(OneRankEngineTest, ATraceTellsWhereALeaseEndedInstead) {
  ZeroOptions options = Roomy(3);
  options.own_lease_ends = true;
  Open(options, 16);  // eight chunks
  ASSERT_THAT(engine_->Seal({}), IsOk());
  std::vector<int> backward(16);
  std::iota(backward.rbegin(), backward.rend(), 0);
  enum class End { kAtOnce, kInTheBackward, kNotInTheStep };
  const auto step = [&](End end) {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    ParamLease kept;
    for (int p = 0; p < 16; ++p) {
      Result<ParamLease> lease = Acquire(p);
      ASSERT_THAT(lease, IsOk());
      if (p == 2 && end != End::kAtOnce) kept = *std::move(lease);
    }
    if (end == End::kInTheBackward) kept.Release();
    Backward(backward);
    ASSERT_THAT(engine_->Step(0.0), IsOk());
  };
  step(End::kAtOnce);
  const StepTrace at_once = engine_->RecordedTrace().step;
  EXPECT_EQ(at_once.lease_ends, std::vector<LeaseEnd>());
  step(End::kAtOnce);
  EXPECT_EQ(engine_->RecordedTrace().step, at_once);
  const auto uses_of = [&](const ChunkId chunk) {
    std::vector<int32_t> uses;
    for (size_t m = 0; m < at_once.accesses.size(); ++m) {
      if (at_once.accesses[m] == Access{AccessKind::kUse, chunk}) {
        uses.push_back(static_cast<int32_t>(m));
      }
    }
    return uses;
  };
  const int32_t use = uses_of(engine_->layout().place(ids_[2]).chunk).front();
  step(End::kInTheBackward);
  const StepTrace later = engine_->RecordedTrace().step;
  EXPECT_EQ(later.accesses, at_once.accesses);
  ASSERT_EQ(later.lease_ends.size(), 1u);
  EXPECT_EQ(later.lease_ends[0].use, use);
  const auto opened = std::ranges::find_if(at_once.accesses, [](Access access) {
    return access.kind == AccessKind::kGradOpen;
  });
  EXPECT_LE(later.lease_ends[0].before, opened - at_once.accesses.begin());
  EXPECT_GT(later.lease_ends[0].before, use + 2);
  EXPECT_THAT(ValidateStep(later, engine_->layout().chunks().size()), IsOk());
  step(End::kNotInTheStep);
  const auto all = static_cast<int32_t>(at_once.accesses.size());
  EXPECT_EQ(engine_->RecordedTrace().step.lease_ends,
            std::vector<LeaseEnd>({{use, all}}));
  EXPECT_EQ(engine_->stats().divergences, 0);
  ASSERT_THAT(engine_->Close(), IsOk());
}

// Moments that may lack something: states stay off the device, though it has
// room, and a step that holds more than they say gets slots; placed anew, the
// states use the room.
TEST_F(OneRankEngineTest, AnEstimateLeavesRoomForWhatItLacks) {
  for (const bool estimate : {true, false}) {
    ZeroOptions options = Roomy(3);
    options.own_lease_ends = true;
    options.device_budget = KiB(8) * 30;
    ids_.clear();
    Open(options, 16);  // eight chunks
    SealOptions declared;
    declared.grow = true;
    declared.estimate = estimate;
    declared.held = {{{ids_[0]}, {}}, {{}, {ids_[0]}}};
    ASSERT_THAT(engine_->Seal(declared), IsOk());
    const auto at_home = [&] {
      return engine_->stats().home_bytes[TierIndex(Tier::kDevice)];
    };
    EXPECT_EQ(at_home() > Bytes(0), !estimate);
    if (estimate) {
      ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
      {
        std::vector<ParamLease> all;
        for (int p = 0; p < 16; ++p) {
          Result<ParamLease> lease = Acquire(p);
          ASSERT_THAT(lease, IsOk()) << p;
          all.push_back(*std::move(lease));
        }
      }
      std::vector<int> backward(16);
      std::iota(backward.begin(), backward.end(), 0);
      Backward(backward);
      ASSERT_THAT(engine_->Step(0.1), IsOk());
      EXPECT_GT(engine_->stats().grown_slots, 0);
      ResealOptions anew;
      anew.device_budget = MiB(1);
      anew.declared.grow = true;
      ASSERT_THAT(engine_->Reseal(anew), IsOk());
      EXPECT_GT(at_home(), Bytes(0));
    }
    ASSERT_THAT(engine_->Close(), IsOk());
    engine_.reset();
    InProcessOptions in_process;
    in_process.executor = &pool_;
    world_ = MakeInProcessWorld(in_process);
  }
}

}  // namespace
}  // namespace castor
