// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Other budgets between steps: the same bits, wherever states were and come to
// be, and nothing changed where the budgets do not do.

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/toy_model.h"
#include "tests/support/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::HasSubstr;

class ZeroEngineResealTest : public ZeroEngineTest {};

// From tight to roomy, tighter than before, and back.
TEST_F(ZeroEngineResealTest, AnyBudgetsAfterAnyStepEqualPlainArrays) {
  for (const int world : {1, 2, 3}) {
    for (const int stage : {0, 2, 3}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(testing::Message() << "world " << world << " stage "
                                        << stage << " " << DTypeName(dtype));
        const ToyModel model = MakeToyModel(7, 10, 2500, dtype);
        ToyRun run;
        run.steps = 8;
        run.micro_batches = 2;
        run.between_steps = [](ZeroEngine& engine, int step) -> Status {
          ResealOptions options;
          options.declared.micro_batches = 2;
          if (step == 1) options.device_budget = MiB(4);
          if (step == 3) options.device_budget = KiB(300);
          if (step == 4) options.host_budget = MiB(4);
          if (step == 6) options.device_budget = MiB(2);
          if (step % 2 == 0 && step != 4 && step != 6) return OkStatus();
          return engine.Reseal(options);
        };
        std::vector<Bytes> on_device;
        run.after_step = [&](ZeroEngine& engine, int) {
          if (engine.rank() != 0) return;
          const EngineStats stats = engine.stats();
          on_device.push_back(stats.home_bytes[TierIndex(Tier::kDevice)]);
          for (const Tier tier : kAllTiers) {
            const TierUse& use = stats.tiers[TierIndex(tier)];
            EXPECT_LE(use.peak, use.budget) << TierName(tier);
          }
        };
        ZeroOptions options = Tight(stage, KiB(300), KiB(400));
        options.clip_norm = 0.5;
        options.min_chunk = options.max_chunk = Bytes(0);
        options.chunk_size = KiB(12);
        const ToyResult got = TrainToy(model, run, world, options);
        ExpectEqual(got, TrainToyReference(model, run, world, options));
        if (HasFatalFailure()) return;
        ASSERT_EQ(on_device.size(), 8u);
        // Shards of several ranks are small enough from the start.
        EXPECT_LE(on_device[0], on_device[2]);
        EXPECT_LE(on_device[4], on_device[2]);
        if (world > 1) continue;
        EXPECT_LT(on_device[0], on_device[2]) << "more room";
        EXPECT_LT(on_device[4], on_device[2]) << "less again";
      }
    }
  }
}

TEST_F(ZeroEngineResealTest, WhatDoesNotFitChangesNothing) {
  const ToyModel model = MakeToyModel(7, 10, 2500, DType::kF32);
  ToyRun run;
  run.steps = 3;
  run.between_steps = [](ZeroEngine& engine, int) -> Status {
    ResealOptions options;
    // One rank alone lacks it.
    options.device_budget = engine.rank() == 1 ? KiB(8) : MiB(8);
    const Status refused = engine.Reseal(options);
    EXPECT_THAT(refused, StatusIs(ErrorCode::kInfeasible,
                                  HasSubstr("raise the device budget by")));
    options.device_budget.reset();
    options.declared.micro_batches = 0;
    EXPECT_THAT(engine.Reseal(options), StatusIs(ErrorCode::kInvalidArgument,
                                                 HasSubstr("micro-batches")));
    // Ranks that declare other things.
    options.declared.micro_batches = 1 + engine.rank();
    EXPECT_THAT(engine.Reseal(options),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("declared")));
    EXPECT_EQ(engine.stats().tiers[TierIndex(Tier::kDevice)].budget, KiB(200));
    return OkStatus();
  };
  const ZeroOptions options = Tight(3, KiB(200), KiB(400));
  ExpectEqual(TrainToy(model, run, 2, options),
              TrainToyReference(model, run, 2, options));
}

TEST_F(OneRankEngineTest, ResealsBetweenStepsAndWithNothingHeld) {
  Open(Roomy(3), 4);
  const auto not_now = [](const std::string& why) {
    return StatusIs(ErrorCode::kFailedPrecondition, HasSubstr(why));
  };
  EXPECT_THAT(engine_->Reseal({}), not_now("not sealed"));
  SealOptions declared;
  declared.largest_lease = KiB(4);
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  {
    const Result<MemoryLease> lease = engine_->Borrow(KiB(1), lane_);
    ASSERT_THAT(lease, IsOk());
    EXPECT_THAT(engine_->Reseal({}), not_now("release every lease"));
  }
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  EXPECT_THAT(engine_->Reseal({}), not_now("half done"));
  Backward({3, 2, 1, 0});
  ASSERT_THAT(engine_->Step(0.1), IsOk());
  ASSERT_THAT(engine_->Park(Tier::kHost), IsOk());
  EXPECT_THAT(engine_->Reseal({}), not_now("parked"));
  ASSERT_THAT(engine_->Resume(), IsOk());

  // A save that is under way ends first, and what it wrote is whole.
  TempDir folder;
  ASSERT_THAT(
      engine_->Save({.directory = folder.path().string(), .wait = false}),
      IsOk());
  const Result<uint64_t> digest = engine_->WeightDigest();
  ASSERT_THAT(engine_->Reseal({.device_budget = MiB(2)}), IsOk());
  EXPECT_EQ(*engine_->WeightDigest(), *digest);
  EXPECT_THAT(engine_->FinishSave(), IsOk());
  ASSERT_THAT(engine_->Load({.directory = folder.path().string()}), IsOk());
  EXPECT_EQ(*engine_->WeightDigest(), *digest);
  // Its working set is now what Reseal was told: no lease.
  EXPECT_THAT(engine_->Borrow(KiB(1), lane_).status(),
              StatusIs(ErrorCode::kTierFull));
  ASSERT_THAT(engine_->Park(Tier::kHost), IsOk());
  ASSERT_THAT(engine_->Resume(), IsOk());
  EXPECT_EQ(*engine_->WeightDigest(), *digest);
  EXPECT_THAT(engine_->Close(), IsOk());
}

}  // namespace
}  // namespace castor
