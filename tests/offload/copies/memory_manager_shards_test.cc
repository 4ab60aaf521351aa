// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How a MemoryManager keeps copies of shards between gathers.

#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/memory_manager.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "tests/offload/copies/fake_chunk_source.h"
#include "tests/offload/copies/memory_manager_fixture.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class MemoryManagerShardsTest : public MemoryManagerFixture {
 protected:
  // Five chunks, each used on the way there and back, and three slots that hold
  // two shards each.
  void OpenShards(bool frozen = false, int depth = 0) {
    policy_ = PlanPolicy::kPlanned;
    PlanProblem problem;
    problem.param_class.assign(5, 0);
    problem.grad_class.assign(5, 0);
    problem.fetch_cost.assign(5, 4);
    problem.shard_cost.assign(5, 3);
    problem.shards_per_slot = {2};
    problem.survives_step.assign(5, frozen);
    problem.slots = {3};
    problem.prefetch.depth = depth;
    Open(std::move(problem));
  }
  const std::vector<int> kSweep = {0, 1, 2, 3, 4, 4, 3, 2, 1, 0};
};

TEST_F(MemoryManagerShardsTest, GathersSendFromCopiesThatThePlanKeeps) {
  OpenShards();
  Step(kSweep);
  ASSERT_NE(manager_->plan(), nullptr);
  EXPECT_THAT(manager_->plan()->shard_slots, ElementsAre(2));
  // Two slots are held for shards from now on, whatever is in them.
  EXPECT_EQ(in_use(), kSlot * 2);
  for (int i = 0; i < 3; ++i) {
    source_->shards.clear();
    const MemoryManagerStats before = manager_->stats();
    Step(kSweep);
    // The last chunk's gathered copy serves both its uses.
    EXPECT_THAT(source_->shards, SizeIs(4));
    EXPECT_EQ(manager_->stats().gathers - before.gathers, 9);
    EXPECT_EQ(manager_->stats().fetches - before.fetches, 5);
  }
  EXPECT_EQ(device_->stats().peak, kSlot * 3);
  EXPECT_EQ(manager_->stats().divergences, 0);
}

TEST_F(MemoryManagerShardsTest, FrozenOnesAreKeptFromStepToStep) {
  OpenShards(true);
  for (int i = 0; i < 3; ++i) Step(kSweep);
  source_->shards.clear();
  const MemoryManagerStats before = manager_->stats();
  Step(kSweep);
  EXPECT_LE(manager_->stats().fetches - before.fetches, 1);
  EXPECT_GE(manager_->stats().gathers - before.gathers, 8);
}

TEST_F(MemoryManagerShardsTest, TheUpdateMakesTrainableOnesStale) {
  OpenShards(false, 2);
  // Every use checks that it sees the newest version.
  for (int i = 0; i < 4; ++i) Step(kSweep);
  EXPECT_GT(source_->from_shards.size(), 12u);
  EXPECT_EQ(manager_->stats().divergences, 0);
}

TEST_F(MemoryManagerShardsTest, WhatDepartsFromThePlanIsServedOnDemand) {
  OpenShards();
  Step(kSweep);
  Step(kSweep);
  Step({0, 1, 2, 3, 2, 1, 0});
  EXPECT_EQ(manager_->stats().divergences, 1);
  // Two and three at once leave no slot but those of shards.
  {
    const ChunkPin a = Take(0);
    const ChunkPin b = Take(1);
    const ChunkPin c = Take(2);
    EXPECT_EQ(in_use(), kSlot * 3);
    EXPECT_THAT(manager_->Acquire(ChunkId(3), lane_).status(),
                StatusIs(ErrorCode::kInfeasible));
  }
  UseAll({3, 4, 4, 3});
  NextStep();
  for (int i = 0; i < 3; ++i) Step(kSweep);
  EXPECT_THAT(manager_->plan()->shard_slots, ElementsAre(2));
  EXPECT_LE(device_->stats().peak, kSlot * 3);
}

TEST_F(MemoryManagerShardsTest, AnEvaluationMayTakeTheirSlots) {
  OpenShards();
  Step(kSweep);
  UseAll({0, 1, 2});
  manager_->BeginEvaluation();
  {
    const ChunkPin a = Take(4);
    const ChunkPin b = Take(3);
    const ChunkPin c = Take(2);
  }
  manager_->EndEvaluation();
  UseAll({3, 4, 4, 3, 2, 1, 0});
  NextStep();
  EXPECT_EQ(manager_->stats().divergences, 0);
  source_->shards.clear();
  Step(kSweep);
  EXPECT_THAT(source_->shards, SizeIs(4));
}

TEST_F(MemoryManagerShardsTest, DroppingEverythingEmptiesTheDevice) {
  OpenShards(true);
  Step(kSweep);
  Step(kSweep);
  // Somebody writes parameters.
  for (int32_t& version : source_->versions) ++version;
  manager_->DropAll(RunCause::kNone);
  EXPECT_EQ(in_use(), Bytes(0));
  manager_->BeginStep(++step_);
  for (int i = 0; i < 2; ++i) Step(kSweep);
  EXPECT_THAT(manager_->Close(), IsOk());
  EXPECT_EQ(in_use(), Bytes(0));
}

TEST_F(MemoryManagerShardsTest, OnDemandNothingIsKept) {
  OpenShards();
  policy_ = PlanPolicy::kAuto;
  Open(problem_);
  for (int i = 0; i < 3; ++i) Step(kSweep);
  EXPECT_THAT(source_->shards, IsEmpty());
  EXPECT_EQ(manager_->stats().fetches, manager_->stats().gathers);
}

}  // namespace
}  // namespace castor
