// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Engines that leave the device to others for a while.

#include <filesystem>
#include <functional>
#include <utility>
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
#include "tests/support/test_rounds.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Trains with a Park and a Resume on every rank after every step.
ToyResult TrainParking(const ToyModel& model, ToyRun run, int world,
                       const ZeroOptions& options, Tier to,
                       std::function<void(const ParkResult&)> check = {}) {
  run.between_steps = [to, check](ZeroEngine& engine, int) {
    const uint64_t before = *engine.WeightDigest();
    CASTOR_ASSIGN_OR_RETURN(const ParkResult parked, engine.Park(to));
    if (check) check(parked);
    // Wherever they are, the weights can be read.
    if (*engine.WeightDigest() != before) return Internal("lost in Park");
    return engine.Resume();
  };
  return TrainToy(model, run, world, options);
}

TEST_F(ZeroEngineTest, TrainingGoesOnWithTheSameBitsAfterEveryPark) {
  int combination = 0;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(31, 24, 2000, dtype);
    for (int stage : {0, 2, 3}) {
      for (Tier to : {Tier::kHost, Tier::kNvme}) {
        if (combination++ % TestStride() != 0) continue;
        SCOPED_TRACE(testing::Message()
                     << "stage " << stage << " to " << TierName(to));
        ToyRun run;
        run.steps = 4;
        ZeroOptions options = Roomy(stage);
        options.clip_norm = 0.5;
        options.nvme = {NvmeOption{nvme_.path(), std::nullopt}};
        const ToyResult want = TrainToy(model, run, 2, options);
        const ToyResult got = TrainParking(
            model, run, 2, options, to, [](const ParkResult& parked) {
              EXPECT_GT(parked.moved, Bytes(0));
              EXPECT_EQ(parked.remaining, Bytes(0));
              EXPECT_EQ(parked.held, Bytes(0));
              EXPECT_EQ(parked.shortfall, "");
            });
        ASSERT_THAT(want.status, IsOk());
        ExpectEqual(got, want);
        EXPECT_EQ(got.digest, want.digest);
        ExpectWithinBudgets(got);
      }
    }
  }
}

TEST_F(ZeroEngineTest, StatesOnEveryTierAreParkedAndComeBack) {
  const ToyModel model = MakeToyModel(32, 30, 2000, DType::kBF16);
  ToyRun run;
  run.steps = 4;
  run.worker_lanes = 2;
  for (int stage : {1, 3}) {
    for (Tier to : {Tier::kHost, Tier::kNvme}) {
      // Each stage and each tier, where a sanitizer watches.
      if (TestStride() > 1 && (stage == 1) != (to == Tier::kHost)) continue;
      SCOPED_TRACE(testing::Message()
                   << "stage " << stage << " to " << TierName(to));
      const ZeroOptions options = Tight(stage, KiB(160), KiB(400));
      const ToyResult want = TrainToy(model, run, 2, options);
      const ToyResult got = TrainParking(model, run, 2, options, to);
      ASSERT_THAT(want.status, IsOk());
      ExpectEqual(got, want);
      ExpectWithinBudgets(got);
    }
  }
}

TEST_F(OneRankEngineTest, AParkedEngineRefusesAllButReadingAndResume) {
  Open(Roomy(3), 8);
  SealOptions declared;
  declared.largest_lease = KiB(8);
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  EXPECT_THAT(engine_->Resume(), StatusIs(ErrorCode::kFailedPrecondition));
  const uint64_t digest = *engine_->WeightDigest();
  const Result<ParkResult> parked = engine_->Park(Tier::kHost);
  ASSERT_THAT(parked, IsOk());
  EXPECT_EQ(parked->held, Bytes(0));
  EXPECT_EQ(engine_->stats().tiers[0].in_use, Bytes(0));
  EXPECT_EQ(engine_->stats().tiers[1].in_use, parked->moved);
  const auto refused = StatusIs(ErrorCode::kFailedPrecondition,
                                HasSubstr("parked: call Resume"));
  EXPECT_THAT(Acquire(0).status(), refused);
  EXPECT_THAT(engine_->BeginMicroBatch(true), refused);
  EXPECT_THAT(engine_->Step(0.1).status(), refused);
  EXPECT_THAT(engine_->Evaluate().status(), refused);
  EXPECT_THAT(engine_->Borrow(KiB(1), lane_).status(), refused);
  ExpectInitialValues(3);
  EXPECT_EQ(*engine_->WeightDigest(), digest);
  ASSERT_THAT(engine_->Resume(), IsOk());
  EXPECT_EQ(*engine_->WeightDigest(), digest);
  EXPECT_THAT(engine_->Borrow(KiB(8), lane_), IsOk()) << "leases are back";
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  Backward({0, 3});
  EXPECT_THAT(engine_->Step(0.1), IsOk());
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(OneRankEngineTest, ParkIsForTheTimeBetweenSteps) {
  Open(Roomy(3), 4);
  SealOptions declared;
  declared.largest_lease = KiB(8);
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  const auto says = [](const char* what) {
    return StatusIs(ErrorCode::kFailedPrecondition, HasSubstr(what));
  };
  {
    const Result<ParamLease> lease = Acquire(1);
    EXPECT_THAT(engine_->Park(Tier::kHost).status(), says("still held"));
  }
  {
    const Result<MemoryLease> lease = engine_->Borrow(KiB(4), lane_);
    EXPECT_THAT(engine_->Park(Tier::kHost).status(), says("4096 bytes"));
  }
  {
    const Result<EvaluateScope> scope = engine_->Evaluate();
    EXPECT_THAT(engine_->Park(Tier::kHost).status(), says("evaluation"));
  }
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  EXPECT_THAT(engine_->Park(Tier::kHost).status(), says("half done"));
  ASSERT_THAT(engine_->Abandon(), IsOk());
  EXPECT_THAT(engine_->Park(Tier::kDevice).status(),
              StatusIs(ErrorCode::kInvalidArgument));
  EXPECT_THAT(engine_->Park(Tier::kHost), IsOk());
}

TEST_F(OneRankEngineTest, WhatTheTierHasNoRoomForRemainsAndIsNamed) {
  ZeroOptions options = Roomy(3);
  options.host_budget = KiB(20);  // of 12 KiB for each of four chunks
  options.nvme = {NvmeOption{nvme_.path(), std::nullopt}};
  Open(options, 8);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  const uint64_t digest = *engine_->WeightDigest();
  const Bytes allocated = engine_->stats().tiers[0].peak;
  const Result<ParkResult> part = engine_->Park(Tier::kHost);
  ASSERT_THAT(part, IsOk());
  EXPECT_EQ(part->moved, KiB(16));
  EXPECT_EQ(part->remaining, KiB(80));
  EXPECT_GE(part->held, allocated - KiB(16)) << "the slab goes as a whole";
  EXPECT_THAT(part->shortfall,
              AllOf(HasSubstr("81920 bytes"), HasSubstr("host"),
                    HasSubstr("raise the host budget by 77824 bytes")));
  EXPECT_EQ(*engine_->WeightDigest(), digest);
  // NVMe takes no more than the way there through host memory lets it.
  const Result<ParkResult> none = engine_->Park(Tier::kNvme);
  ASSERT_THAT(none, IsOk());
  EXPECT_EQ(none->moved, Bytes(0));
  EXPECT_THAT(none->shortfall, HasSubstr("raise the host budget by"));
  ASSERT_THAT(engine_->Resume(), IsOk());
  EXPECT_EQ(*engine_->WeightDigest(), digest);
  EXPECT_EQ(engine_->stats().tiers[1].in_use, Bytes(0));
  ExpectInitialValues(7);
}

TEST_F(OneRankEngineTest, WhatRemainsMayBeParkedOnAnotherTier) {
  ZeroOptions options = Roomy(3);
  options.host_budget = KiB(40);
  options.nvme = {NvmeOption{nvme_.path(), KiB(64)}};
  Open(options, 8);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  const uint64_t digest = *engine_->WeightDigest();
  const Result<ParkResult> first = engine_->Park(Tier::kNvme);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->moved, KiB(64));
  EXPECT_EQ(first->remaining, KiB(32));
  EXPECT_THAT(first->shortfall, HasSubstr("raise the NVMe size by"));
  const Result<ParkResult> second = engine_->Park(Tier::kHost);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->moved, KiB(24)) << "beside the staging of the first";
  EXPECT_EQ(second->remaining, KiB(8));
  EXPECT_EQ(*engine_->WeightDigest(), digest);
  ASSERT_THAT(engine_->Resume(), IsOk());
  EXPECT_EQ(*engine_->WeightDigest(), digest);
  ExpectInitialValues(2);
  EXPECT_THAT(engine_->Close(), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(nvme_.path()));
}

TEST_F(OneRankEngineTest, AnEngineMayEndWhileItIsParked) {
  for (bool close : {true, false}) {
    ZeroOptions options = Roomy(3);
    options.nvme = {NvmeOption{nvme_.path(), std::nullopt}};
    ids_.clear();
    Open(options, 8);
    ASSERT_THAT(engine_->Seal({}), IsOk());
    ASSERT_THAT(engine_->Park(Tier::kNvme), IsOk());
    if (close) {
      EXPECT_THAT(engine_->Close(), IsOk());
    }
    engine_.reset();
    EXPECT_TRUE(std::filesystem::is_empty(nvme_.path()));
  }
}

}  // namespace
}  // namespace castor
