// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What leases leave of their room is lent to copies of shards: the same bits,
// in the same budgets, for fewer fetches.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "placement/plan.h"
#include "tests/support/status_matchers.h"
#include "tests/support/toy_model.h"
#include "tests/support/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

constexpr Bytes kArena = KiB(48);
constexpr int kParams = 16;

// Of every parameter as much, so that the arena is full between the sweeps and
// empty between micro-batches.
Bytes EvenShare(int, const ToyMoment&) { return kArena / kParams; }

class ZeroEngineLentTest : public ZeroEngineTest {
 protected:
  struct Trained {
    ToyResult result;
    std::vector<int64_t> fetches;  // of rank 0, by step
    std::vector<int64_t> gathers;
  };

  // With the least budget that serves. Weights are the reference's.
  Trained Train(ToyRun run, int world,
                PlanPolicy policy = PlanPolicy::kPlanned) {
    const ToyModel model = MakeToyModel(6, kParams, 1500, DType::kF32);
    Trained trained;
    int64_t fetches = 0;
    int64_t gathers = 0;
    run.after_step = [&](ZeroEngine& engine, int) {
      const EngineStats stats = engine.stats();
      trained.fetches.push_back(stats.fetches - fetches);
      trained.gathers.push_back(stats.gathers - gathers);
      fetches = stats.fetches;
      gathers = stats.gathers;
    };
    run.largest_lease = kArena;
    run.micro_batches = 3;
    run.steps = 6;
    ZeroOptions options = Roomy(3);
    options.policy = policy;
    options.prefetch_depth = depth_;
    for (Bytes budget = kArena; budget < MiB(1); budget += KiB(1)) {
      options.device_budget = budget;
      trained.fetches.clear();
      trained.gathers.clear();
      fetches = gathers = 0;
      trained.result = TrainToy(model, run, world, options);
      if (trained.result.status.code() != ErrorCode::kInfeasible) break;
    }
    ExpectWithinBudgets(trained.result);
    ExpectEqual(trained.result, TrainToyReference(model, run, world, options));
    return trained;
  }
  static int64_t Steady(const Trained& trained) {
    return trained.fetches.back();
  }

  int depth_ = 0;
};

// The whole arena is on lease where anything could lie in it.
Bytes AllAtOnce(int, const ToyMoment& at) {
  return at.param == 0 ? kArena : Bytes(0);
}

TEST_F(ZeroEngineLentTest, TheSameBitsForFewerFetches) {
  for (const int world : {1, 3}) {
    for (depth_ = 0; depth_ < 3; depth_ += 2) {
      SCOPED_TRACE(testing::Message() << world << " ranks, " << depth_);
      ToyRun run;
      run.keeps = AllAtOnce;
      const Trained without = Train(run, world);
      run.keeps = EvenShare;
      const Trained with = Train(run, world);
      EXPECT_LT(Steady(with), Steady(without));
      EXPECT_EQ(with.result.stats.divergences, 0);
      EXPECT_EQ(with.result.stats.tiers[0].budget,
                without.result.stats.tiers[0].budget);
      // Every steady step is like the other.
      EXPECT_EQ(with.fetches[3], with.fetches[4]);
      EXPECT_EQ(with.fetches[4], with.fetches[5]);
      // On demand nothing is kept.
      const Trained on_demand = Train(run, world, PlanPolicy::kAuto);
      EXPECT_LT(Steady(with), Steady(on_demand));
    }
  }
}

TEST_F(ZeroEngineLentTest, RanksWhoseLeasesDifferPlanAlike) {
  ToyRun run;
  run.keeps = EvenShare;
  const Trained even = Train(run, 3);
  // One rank has little room at its fullest, and another keeps it the other
  // way round.
  run.keeps = [](int rank, const ToyMoment& at) {
    const int64_t share = (kArena / kParams).count();
    if (rank == 1) return Bytes(at.param < 8 ? share * 2 - 512 : 512);
    if (rank == 2) return Bytes(at.param % 3 == 0 ? 0 : share);
    return Bytes(share / 2);
  };
  const Trained uneven = Train(run, 3);
  EXPECT_GE(Steady(uneven), Steady(even));
  EXPECT_EQ(uneven.result.stats.divergences, 0);
}

TEST_F(ZeroEngineLentTest, StepsThatNeverRepeatGetTheSameBits) {
  ToyRun run;
  run.keeps = EvenShare;
  run.skipped = 0.2;
  run.left_open = 0.2;
  const Trained trained = Train(run, 3);
  EXPECT_GT(trained.result.stats.divergences, 2);
}

TEST_F(ZeroEngineLentTest, AnUnforeseenLeaseIsServedAtOnce) {
  for (const int world : {1, 3}) {
    ToyRun run;
    // Little but in one step, and on one rank alone.
    run.keeps = [world](int rank, const ToyMoment& at) {
      const bool more = at.step == 3 && rank == world - 1 &&
                        at.micro_batch == 1 && at.param == 4;
      return more ? kArena * 3 / 4 : Bytes(512);
    };
    const Trained trained = Train(run, world);
    // Only the rank itself has departed; all plan for the next step, and again
    // when that has shown how little it takes.
    EXPECT_EQ(trained.result.stats.divergences, world == 1 ? 1 : 0);
    EXPECT_GT(trained.fetches[4], trained.fetches[2]);
    EXPECT_EQ(trained.fetches[5], trained.fetches[2]);
    if (world == 1) {
      EXPECT_GT(trained.fetches[3], trained.fetches[2]);
    }
  }
}

TEST_F(ZeroEngineLentTest, LongerSequencesArePlannedForWithinAStep) {
  for (const int world : {1, 3}) {
    SCOPED_TRACE(testing::Message() << world << " ranks");
    const auto keeps = [world](int from) {
      return [world, from](int rank, const ToyMoment& at) {
        const bool longer = at.step >= from && rank == world - 1;
        return longer ? kArena / kParams : kArena / kParams / 4;
      };
    };
    ToyRun run;
    run.keeps = keeps(0);
    const Trained always = Train(run, world);
    run.keeps = keeps(2);
    const Trained later = Train(run, world);
    EXPECT_EQ(later.result.stats.divergences, world == 1 ? 1 : 0);
    EXPECT_LT(later.fetches[1], Steady(always));
    EXPECT_EQ(later.fetches[3], Steady(always));
    EXPECT_EQ(later.fetches[5], Steady(always));
  }
}

TEST_F(ZeroEngineLentTest, LeasesMayDifferFromStepToStep) {
  for (const int world : {1, 3}) {
    ToyRun run;
    run.keeps = [](int rank, const ToyMoment& at) {
      const auto n = static_cast<int64_t>(at.param) * 5 + at.step * 3 +
                     at.micro_batch + rank;
      return Bytes(n * 37 % 2900);
    };
    run.worker_lanes = 2;
    Train(run, world);
  }
}

TEST_F(ZeroEngineLentTest, EvaluationsAndStepsGivenUpDoNotMind) {
  for (const int world : {1, 3}) {
    ToyRun run;
    run.keeps = EvenShare;
    run.evaluates = [](const ToyMoment& at) {
      return at.step == 3 && at.micro_batch == 1 && at.param == 5;
    };
    run.abandons = [](const ToyMoment& at) {
      return at.step == 4 && at.attempt == 0 && at.micro_batch == 1 &&
             at.point == ToyPoint::kBackward && at.param == 7;
    };
    const Trained trained = Train(run, world);
    EXPECT_EQ(trained.fetches[5], trained.fetches[2]);
  }
}

TEST_F(ZeroEngineLentTest, TheArenaIsLeftWithTheDevice) {
  ToyRun run;
  run.keeps = EvenShare;
  run.between_steps = [](ZeroEngine& engine, int step) {
    if (step != 3) return OkStatus();
    Result<ParkResult> parked = engine.Park(Tier::kHost);
    if (!parked.ok()) return parked.status();
    EXPECT_EQ(parked->held, Bytes(0));
    return engine.Resume();
  };
  for (const int world : {1, 3}) {
    const Trained trained = Train(run, world);
    EXPECT_EQ(trained.fetches[5], trained.fetches[2]);
  }
}

}  // namespace
}  // namespace castor
