// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a MemoryManager fetched ahead and no longer wants, and how it ends.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "offload/memory_manager.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "tests/offload/copies/fake_chunk_source.h"
#include "tests/offload/copies/memory_manager_fixture.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class MemoryManagerCancelTest : public MemoryManagerFixture {
 protected:
  ~MemoryManagerCancelTest() override {
    executor_.RunAll();
    manager_.reset();
  }
  // After a step that is planned, with all that is fetched ahead of the next
  // one under way, held back by `drive_`.
  void OpenPlanned(int chunks, int64_t slots, int depth) {
    Open(chunks, slots, depth);
    source_->cancellable = true;
    for (int c = 0; c < chunks; ++c) sweep_.push_back(c);
    UseAll(sweep_);
    ASSERT_THAT(manager_->EndStep(), IsOk());
    Update();
    source_->lane = &copies_;
    copies_.Wait(drive_.event());
    manager_->BeginStep(++step_);
    ASSERT_THAT(manager_->plan()->initial, Not(IsEmpty()));
  }
  const MemoryManagerStats& stats() const { return manager_->stats(); }

  ManualExecutor executor_;
  WorkerLane copies_{"copies", &executor_};
  EventSource drive_;
  std::vector<int> sweep_;
};

TEST_F(MemoryManagerCancelTest, DropAllTakesBackWhatHasNotBegun) {
  OpenPlanned(6, 4, 3);
  const size_t ahead = manager_->plan()->initial.size();
  manager_->DropAll(RunCause::kNone);
  EXPECT_EQ(stats().cancelled_gathers, static_cast<int64_t>(ahead));
  EXPECT_EQ(in_use(), Bytes(0));
  // The slots are free at once: their next users wait for no copy.
  for (int64_t i = 0; i < 4; ++i) {
    const Slot slot = *device_->Take(0);
    EXPECT_TRUE(slot.free_after.done());
    device_->Give(slot, Event());
  }
  drive_.Complete();
}

TEST_F(MemoryManagerCancelTest, WhatHasBegunKeepsItsSlotUntilItIsDone) {
  OpenPlanned(6, 4, 3);
  drive_.Complete();
  executor_.RunAll();
  source_->calls.clear();
  manager_->DropAll(RunCause::kNone);
  EXPECT_EQ(stats().cancelled_gathers, 0);
  EXPECT_THAT(source_->cancelled, IsEmpty());
}

TEST_F(MemoryManagerCancelTest, ADivergenceTakesBackWhatServedThePlan) {
  OpenPlanned(6, 4, 3);
  const ChunkId first = manager_->plan()->initial.front();
  ASSERT_EQ(first, ChunkId(0));
  WorkerLane lane("compute", &executor_);
  // Not what the plan has next; it is there on demand.
  { Result<ChunkPin> pin = manager_->Acquire(ChunkId(5), lane); }
  EXPECT_EQ(stats().divergences, 1);
  EXPECT_THAT(source_->cancelled, Contains(first));
  EXPECT_EQ(stats().cancelled_gathers,
            static_cast<int64_t>(source_->cancelled.size()));
  EXPECT_EQ(in_use(), kSlot) << "the chunk that was asked for";
  drive_.Complete();
  executor_.RunAll();
  EXPECT_THAT(lane.status(), IsOk());
}

TEST_F(MemoryManagerCancelTest, AnAccessThatDivergesKeepsWhatIsThereForIt) {
  OpenPlanned(6, 4, 3);
  ASSERT_GT(manager_->plan()->initial.size(), 1u);
  const ChunkId second = manager_->plan()->initial[1];
  WorkerLane lane("compute", &executor_);
  const int64_t gathers = stats().gathers;
  { Result<ChunkPin> pin = manager_->Acquire(second, lane); }
  EXPECT_EQ(stats().divergences, 1);
  EXPECT_EQ(stats().gathers, gathers) << "it was on its way";
  EXPECT_THAT(source_->cancelled, Not(Contains(second)));
  drive_.Complete();
  executor_.RunAll();
}

// A source knows the last load of a chunk. Where that is its shard's, asked for
// while a copy was on its way, it is not the one to take back with the copy.
TEST_F(MemoryManagerCancelTest, AShardOnItsWayIsNotTakenBackWithACopy) {
  std::mt19937_64 random(TestSeed(20261126));
  const auto pick = [&](uint64_t n) { return static_cast<int>(random() % n); };
  int met = 0;
  for (int round = 0; round < 2000 && met < 200; ++round) {
    const int chunks = 3 + pick(3);
    const auto n = static_cast<size_t>(chunks);
    PlanProblem problem;
    problem.param_class.assign(n, 0);
    problem.grad_class.assign(n, 0);
    problem.fetch_cost.assign(n, 1);
    problem.shard_cost.assign(n, 1);
    problem.shards_per_slot = {2};
    problem.survives_step.assign(n, true);
    problem.slots = {3};
    problem.prefetch.depth = 1 + pick(2);
    policy_ = PlanPolicy::kPlanned;
    Open(std::move(problem));
    source_->cancellable = true;
    std::vector<int> uses;
    for (int i = 0; i < 8; ++i) {
      uses.push_back(pick(static_cast<uint64_t>(chunks)));
    }
    Step(uses);
    Step(uses);
    const Plan& plan = *manager_->plan();
    const bool both = std::any_of(
        plan.initial.begin(), plan.initial.end(), [&](ChunkId chunk) {
          return std::count(plan.initial_shards.begin(),
                            plan.initial_shards.end(), chunk) > 0;
        });
    if (!both) continue;
    ++met;
    UseAll(uses);
    EventSource drive;
    source_->lane = &copies_;
    copies_.Wait(drive.event());
    WorkerLane lane("compute", &executor_);
    // An evaluation takes copies and shards away, and the copies come back.
    const auto evaluate = [&](bool takes_all_slots) {
      manager_->BeginEvaluation();
      std::vector<ChunkPin> pins;
      for (int c = 0; c < chunks; ++c) {
        const bool wanted = std::count(plan.initial.begin(), plan.initial.end(),
                                       ChunkId(c)) > 0;
        if (wanted && !takes_all_slots) continue;
        Result<ChunkPin> pin = manager_->Acquire(ChunkId(c), lane);
        ASSERT_THAT(pin, IsOk());
        if (takes_all_slots && c < 3) pins.push_back(*std::move(pin));
        if (c == 2) pins.clear();
      }
      manager_->EndEvaluation();
    };
    evaluate(true);
    ASSERT_THAT(manager_->EndStep(), IsOk());
    manager_->BeginStep(++step_);
    evaluate(false);
    drive.Complete();
    executor_.RunAll();
    source_->lane = nullptr;
    Step(uses);  // with what belongs there in every copy
    manager_.reset();
  }
  EXPECT_GT(met, 0);
}

TEST_F(MemoryManagerCancelTest, WhatOthersTakePartInIsNotTakenBack) {
  OpenPlanned(6, 4, 3);
  source_->cancellable = false;
  const Bytes held = in_use();
  WorkerLane lane("compute", &executor_);
  { Result<ChunkPin> pin = manager_->Acquire(ChunkId(5), lane); }
  EXPECT_EQ(stats().divergences, 1);
  EXPECT_GE(in_use(), held) << "it is paid for and may yet be used";
  manager_->DropAll(RunCause::kNone);
  EXPECT_EQ(stats().cancelled_gathers, 0);
  EXPECT_THAT(source_->cancelled, IsEmpty());
  drive_.Complete();
  executor_.RunAll();
}

TEST_F(MemoryManagerCancelTest, WhatWasUsedIsNotTakenBack) {
  OpenPlanned(6, 4, 3);
  WorkerLane lane("compute", &executor_);
  { Result<ChunkPin> pin = manager_->Acquire(ChunkId(0), lane); }
  manager_->DropAll(RunCause::kNone);
  EXPECT_THAT(source_->cancelled, Not(Contains(ChunkId(0))))
      << "the lane waits for it";
  drive_.Complete();
  executor_.RunAll();
  EXPECT_THAT(lane.status(), IsOk());
}

TEST_F(MemoryManagerCancelTest, WhatALaneWaitsForIsRaisedOnce) {
  OpenPlanned(6, 4, 3);
  WorkerLane lane("compute", &executor_);
  EXPECT_THAT(source_->raised, IsEmpty());
  {
    Result<ChunkPin> pin = manager_->Acquire(ChunkId(0), lane);
    Result<ChunkPin> again = manager_->Acquire(ChunkId(0), lane);
  }
  EXPECT_THAT(source_->raised, ElementsAre(ChunkId(0)));
  drive_.Complete();
  executor_.RunAll();
}

TEST_F(MemoryManagerCancelTest, CloseNamesWhatIsHeldAndThenLetsGo) {
  Open(3, 3);
  Use(0);
  {
    const ChunkPin pin = Take(1);
    EXPECT_THAT(manager_->Close(),
                StatusIs(ErrorCode::kFailedPrecondition,
                         AllOf(HasSubstr("1 uses"),
                               HasSubstr("chunk 1 (parameters)"))));
    EXPECT_EQ(in_use(), kSlot * 2) << "nothing was done";
  }
  const Slot grad = *manager_->OpenGrad(ChunkId(2));
  EXPECT_THAT(manager_->Close(), StatusIs(ErrorCode::kFailedPrecondition,
                                          HasSubstr("chunk 2 (gradient)")));
  manager_->CloseGrad(ChunkId(2), grad, Event());
  EXPECT_THAT(manager_->Close(), IsOk());
  EXPECT_EQ(in_use(), Bytes(0));
}

TEST_F(MemoryManagerCancelTest, DrainReportsTheFirstFailureAndCountsTheOthers) {
  Open(4, 4);
  ThreadLane copies("copies");
  source_->lane = &copies;
  UseAll({0, 1});
  EXPECT_THAT(manager_->Drain(), IsOk());
  copies.Run([] { return DataLoss("bytes are not what was written"); });
  ThreadLane lane("compute");
  { Result<ChunkPin> pin = manager_->Acquire(ChunkId(2), lane); }
  ThreadLane other("other");
  other.Run([] { return IoError("the drive is gone"); });
  source_->lane = &other;
  { Result<ChunkPin> pin = manager_->Acquire(ChunkId(3), lane); }
  EXPECT_THAT(
      manager_->Drain(),
      StatusIs(ErrorCode::kDataLoss, AllOf(HasSubstr("not what was written"),
                                           HasSubstr("1 more failure"))));
  EXPECT_THAT(manager_->Close(), StatusIs(ErrorCode::kDataLoss));
  EXPECT_EQ(in_use(), Bytes(0));
}

}  // namespace
}  // namespace castor
