// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How a MemoryManager records steps, follows their plan, and finds back to it.

#include <string>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/memory_manager.h"
#include "placement/exact/exact_policy.h"
#include "placement/plan.h"
#include "placement/policy/next_use_policy.h"
#include "placement/run_event.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"
#include "tests/offload/copies/fake_chunk_source.h"
#include "tests/offload/copies/memory_manager_fixture.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using MemoryManagerPlanTest = MemoryManagerFixture;

// A lane that notes when it is told to wait, on top of running at once.
class NotingLane final : public Lane {
 public:
  explicit NotingLane(const FakeChunkSource* source) : source_(source) {}
  void Wait(const Event& event) override {
    gathers_at_wait.push_back(source_->calls.size());
    lane_.Wait(event);
  }
  void Run(Work work) override { lane_.Run(std::move(work)); }
  void RunAsync(AsyncWork work) override { lane_.RunAsync(std::move(work)); }
  Event Record() override { return lane_.Record(); }
  Status status() const override { return lane_.status(); }
  const std::string& name() const override { return lane_.name(); }

  std::vector<size_t> gathers_at_wait;

 private:
  const FakeChunkSource* source_;
  ThreadLane lane_{"noting"};
};

TEST_F(MemoryManagerPlanTest, TheFirstStepGathersOnDemandAndKeepsWhatFits) {
  Open(3, 3, 2);
  UseAll({0, 1, 0, 2, 1});
  EXPECT_THAT(Gathered(), ElementsAre(0, 1, 2));
  EXPECT_THAT(
      source_->calls,
      ElementsAre(FakeChunkSource::Call{ChunkId(0), RunCause::kDemand, 0},
                  FakeChunkSource::Call{ChunkId(1), RunCause::kDemand, 2},
                  FakeChunkSource::Call{ChunkId(2), RunCause::kDemand, 6}));
  EXPECT_EQ(manager_->stats().gathers, 3);
  EXPECT_EQ(manager_->stats().prefetched_gathers, 0);
  EXPECT_EQ(manager_->plan(), nullptr);
}

TEST_F(MemoryManagerPlanTest, TheFirstStepDropsWhatASweepNeedsLast) {
  Open(4, 2);
  UseAll({0, 1, 2, 3, 2, 1, 0});
  // Forward: the furthest behind goes first. At the turn 3 and 2 are there.
  EXPECT_THAT(Gathered(), ElementsAre(0, 1, 2, 3, 1, 0));
}

TEST_F(MemoryManagerPlanTest, AdoptsThePlanOfTheFirstStep) {
  Open(4, 2, 2);
  const std::vector<int> sweep = {0, 1, 2, 3, 2, 1, 0};
  UseAll(sweep);
  Trace trace;
  for (int c : sweep) {
    trace.push_back({AccessKind::kUse, ChunkId(c)});
    trace.push_back({AccessKind::kUseEnd, ChunkId(c)});
  }
  EXPECT_EQ(manager_->moment(), static_cast<int64_t>(trace.size()) - 1);
  ASSERT_THAT(manager_->EndStep(), IsOk());
  EXPECT_EQ(manager_->moment(), -1);
  EXPECT_EQ(manager_->planned_trace(), trace);
  ASSERT_NE(manager_->plan(), nullptr);
  EXPECT_EQ(*manager_->plan(), *PlanNextUse(trace, problem_));
}

TEST_F(MemoryManagerPlanTest, AStepThatIsGivenIsFollowedFromTheFirst) {
  Open(4, 2, 2);
  const std::vector<int> sweep = {0, 1, 2, 3, 2, 1, 0};
  StepTrace step;
  for (const int c : sweep) {
    step.accesses.push_back({AccessKind::kUse, ChunkId(c)});
    step.accesses.push_back({AccessKind::kUseEnd, ChunkId(c)});
  }
  step.leases = {{3, Bytes(64)}};
  ASSERT_THAT(manager_->Adopt(step), IsOk());
  EXPECT_EQ(*manager_->plan(), *PlanNextUse(step.accesses, problem_));
  EXPECT_EQ(manager_->last_step(), step);
  manager_->BeginStep(1);
  EXPECT_GT(manager_->stats().prefetched_gathers, 0);
  Step(sweep);
  // Each chunk came before its use, as in the steps that follow.
  const MemoryManagerStats first = manager_->stats();
  EXPECT_EQ(first.divergences, 0);
  EXPECT_EQ(first.prefetched_gathers, first.gathers);
  EXPECT_EQ(manager_->planned_trace(), step.accesses);

  // One that holds more at once than there are slots leaves nothing planned.
  Open(3, 2);
  StepTrace wide;
  for (const AccessKind kind : {AccessKind::kUse, AccessKind::kUseEnd}) {
    for (int c = 0; c < 3; ++c) wide.accesses.push_back({kind, ChunkId(c)});
  }
  EXPECT_THAT(manager_->Adopt(wide), StatusIs(ErrorCode::kInfeasible));
  EXPECT_EQ(manager_->plan(), nullptr);
  manager_->BeginStep(1);
  Step({0, 1, 2});
  EXPECT_NE(manager_->plan(), nullptr);
}

TEST_F(MemoryManagerPlanTest, ThePlannedPolicyFollowsTheCheapestPlan) {
  policy_ = PlanPolicy::kPlanned;
  PlanProblem problem;
  problem.param_class = {0, 0, 0, 0, 0};
  problem.grad_class = {0, 0, 0, 0, 0};
  problem.fetch_cost = {3, 1, 1, 1, 1};
  problem.survives_step = {false, false, false, false, true};
  problem.slots = {2};
  Open(problem);
  const std::vector<int> uses = {0, 1, 2, 1, 3, 4, 0};
  Step(uses);
  EXPECT_EQ(*manager_->plan(),
            PlanExact(manager_->planned_trace(), problem)->plan);
  ASSERT_NE(manager_->certificate(), nullptr);
  EXPECT_TRUE(manager_->certificate()->optimal);
  for (int i = 0; i < 3; ++i) {
    Gathered();
    Step(uses);
    double cost = 0;
    for (int chunk : Gathered()) {
      cost += problem.fetch_cost[static_cast<size_t>(chunk)];
    }
    EXPECT_EQ(cost, manager_->certificate()->cost);
  }
  EXPECT_EQ(manager_->stats().divergences, 0);
  // Next use, weighed by cost, keeps the cheap copy that is needed sooner.
  policy_ = PlanPolicy::kAuto;
  Open(problem);
  Step(uses);
  EXPECT_NE(*manager_->plan(),
            PlanExact(manager_->planned_trace(), problem)->plan);
  EXPECT_EQ(manager_->certificate(), nullptr);
}

TEST_F(MemoryManagerPlanTest, LeasesArePartOfTheStepAndOfNoPlan) {
  Open(3, 2);
  const std::vector<int> sweep = {0, 1, 2};
  manager_->SetLeased(KiB(4));
  manager_->SetLeased(KiB(1));
  UseAll(sweep);
  manager_->SetLeased(KiB(2));
  ASSERT_THAT(manager_->EndStep(), IsOk());
  // Moments 0 to 4 with what was there at their access; the last one, which
  // lasts to the first access, with the most until then.
  EXPECT_EQ(
      manager_->last_step(),
      (StepTrace{manager_->planned_trace(), {{0, KiB(1)}, {5, KiB(4)}}, {}}));
  for (int step = 2; step < 4; ++step) {
    Update();
    manager_->BeginStep(step);
    UseAll({0});
    // More for a moment, and nothing of an evaluation.
    manager_->SetLeased(KiB(8));
    manager_->SetLeased(KiB(2));
    manager_->BeginEvaluation();
    manager_->SetLeased(MiB(1));
    manager_->SetLeased(KiB(2));
    manager_->EndEvaluation();
    UseAll({1, 2});
    ASSERT_THAT(manager_->EndStep(), IsOk());
    EXPECT_EQ(
        manager_->last_step().leases,
        (std::vector<LeaseChange>{{0, KiB(2)}, {1, KiB(8)}, {2, KiB(2)}}));
  }
  EXPECT_EQ(manager_->stats().divergences, 0);
}

TEST_F(MemoryManagerPlanTest, LaterStepsMakeThePlansMovesAndNoOthers) {
  for (int depth : {0, 1, 3, 4, 5}) {
    policy_ = depth < 4 ? PlanPolicy::kAuto : PlanPolicy::kPlanned;
    Open(8, 4, depth);
    step_ = 1;
    const std::vector<int> sweep = {0, 1, 2, 3, 4, 5, 6, 7,
                                    7, 6, 5, 4, 3, 2, 1, 0};
    UseAll(sweep);
    ASSERT_THAT(manager_->EndStep(), IsOk());
    for (int step = 2; step < 6; ++step) {
      moves_->Clear();
      Update();
      manager_->BeginStep(step);
      UseAll(sweep);
      moves_->NoteGathers();
      std::vector<Move> want;
      for (ChunkId chunk : manager_->plan()->initial) {
        want.push_back({MoveKind::kGather, RunCause::kPrefetch, chunk});
      }
      want.insert(want.end(), manager_->plan()->moves.begin(),
                  manager_->plan()->moves.end());
      EXPECT_EQ(moves_->moves, want) << "depth " << depth << " step " << step;
      ASSERT_THAT(manager_->EndStep(), IsOk());
    }
    EXPECT_EQ(manager_->stats().divergences, 0);
  }
}

TEST_F(MemoryManagerPlanTest, EveryMoveIsMadeAtItsMoment) {
  Open(8, 4, 2);
  const std::vector<int> sweep = {0, 1, 2, 3, 4, 5, 6, 7, 6, 4, 2, 0};
  Step(sweep);
  source_->calls.clear();
  UseAll(sweep);
  std::vector<FakeChunkSource::Call> want;
  const Plan& plan = *manager_->plan();
  for (size_t slice = 0; slice + 1 < plan.first_move.size(); ++slice) {
    for (int32_t m = plan.first_move[slice]; m < plan.first_move[slice + 1];
         ++m) {
      const Move& move = plan.moves[static_cast<size_t>(m)];
      if (move.kind != MoveKind::kGather) continue;
      want.push_back({move.chunk, move.cause, static_cast<int64_t>(slice / 2)});
    }
  }
  EXPECT_THAT(want, Not(IsEmpty()));
  EXPECT_EQ(source_->calls, want);
}

TEST_F(MemoryManagerPlanTest, WhatIsFetchedAheadIsQueuedBeforeTheLaneWaits) {
  Open(6, 4, 3);
  const std::vector<int> sweep = {0, 1, 2, 3, 4, 5};
  Step(sweep);
  NotingLane lane(source_.get());
  for (int chunk : sweep) {
    const size_t waits = lane.gathers_at_wait.size();
    { Result<ChunkPin> pin = manager_->Acquire(ChunkId(chunk), lane); }
    ASSERT_GT(lane.gathers_at_wait.size(), waits);
  }
  // Whatever the acquires gathered, they had when they made the lane wait.
  const Plan& plan = *manager_->plan();
  size_t gathered = source_->calls.size();
  for (size_t slice = 2 * 2 * sweep.size(); slice-- > 0;) {
    const size_t moment = slice / 2;
    const bool acquire = moment % 2 == 0;
    if (acquire && slice % 2 == 1) {
      EXPECT_EQ(lane.gathers_at_wait[moment / 2], gathered)
          << "moment " << moment;
    }
    for (int32_t m = plan.first_move[slice]; m < plan.first_move[slice + 1];
         ++m) {
      gathered -= plan.moves[static_cast<size_t>(m)].kind == MoveKind::kGather;
    }
  }
  EXPECT_GT(manager_->stats().prefetched_gathers, 0);
}

TEST_F(MemoryManagerPlanTest, AStepThatDepartsIsServedCountedAndPlannedAnew) {
  Open(6, 3, 2);
  Step({0, 1, 2, 3, 4, 5});
  Step({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(manager_->stats().divergences, 0);
  moves_->Clear();
  UseAll({0, 1, 5, 3, 0, 2});  // the data is checked by Use
  EXPECT_EQ(manager_->stats().divergences, 1);
  EXPECT_EQ(moves_->Count(RunEventKind::kDivergence), 1);
  NextStep();
  EXPECT_EQ(manager_->planned_trace()[4],
            (Access{AccessKind::kUse, ChunkId(5)}));
  Step({0, 1, 5, 3, 0, 2});
  Step({0, 1, 5, 3, 0, 2});
  EXPECT_EQ(manager_->stats().divergences, 1);
}

TEST_F(MemoryManagerPlanTest, ShorterAndLongerStepsAreDivergencesToo) {
  Open(4, 2, 2);
  Step({0, 1, 2, 3});
  Step({0, 1});
  EXPECT_EQ(manager_->stats().divergences, 1);
  EXPECT_THAT(manager_->planned_trace(), SizeIs(4));
  EXPECT_EQ(moves_->Count(RunEventKind::kDivergence), 1);
  Step({0, 1});
  EXPECT_EQ(manager_->stats().divergences, 1);
  Step({0, 1, 2});
  EXPECT_EQ(manager_->stats().divergences, 2);
  Step({});
  EXPECT_EQ(manager_->stats().divergences, 3);
  Step({});
  EXPECT_EQ(manager_->stats().divergences, 3);
  Step({3, 3});
  EXPECT_EQ(manager_->stats().divergences, 4);
}

TEST_F(MemoryManagerPlanTest,
       CopiesThatAnUpdateMadeStaleAreDroppedFrozenOnesKept) {
  PlanProblem problem;
  problem.param_class = {0, 0, 0};
  problem.grad_class = {0, 0, 0};
  problem.fetch_cost = {1, 1, 1};
  problem.survives_step = {false, true, false};
  problem.slots = {3};
  Open(problem);
  Step({0, 1, 2});
  EXPECT_THAT(Gathered(), ElementsAre(0, 1, 2));
  EXPECT_EQ(in_use(), kSlot);
  for (int i = 0; i < 3; ++i) {
    Step({0, 1, 2});
    EXPECT_THAT(Gathered(), ElementsAre(0, 2)) << "1 is still good";
  }
}

TEST_F(MemoryManagerPlanTest, ARefusalInAPlannedStepLeavesThePlanFollowed) {
  Open(3, 2, 1);
  const auto step = [&](bool refused) {
    ChunkPin a = Take(0);
    ChunkPin b = Take(1);
    if (refused) {
      EXPECT_FALSE(manager_->Acquire(ChunkId(2), lane_).ok());
    }
    a.Release();
    b.Release();
    Use(2);
    NextStep();
  };
  step(false);
  step(false);
  EXPECT_EQ(manager_->stats().divergences, 0);
  step(true);
  // It asked for something that the plan did not have, and was told no.
  EXPECT_EQ(manager_->stats().divergences, 1);
  step(false);
  EXPECT_EQ(manager_->stats().divergences, 1);
}

TEST_F(MemoryManagerPlanTest,
       AnEvaluationBetweenStepsBringsBackWhatThePlanWants) {
  Open(6, 3, 2);
  const std::vector<int> sweep = {0, 1, 2, 3, 4, 5};
  Step(sweep);
  ASSERT_THAT(manager_->plan()->initial, Not(IsEmpty()));
  std::vector<int> initial;
  for (ChunkId chunk : manager_->plan()->initial) {
    initial.push_back(chunk.value());
  }
  manager_->BeginEvaluation();
  EXPECT_TRUE(manager_->evaluating());
  UseAll({2, 3, 4, 5});
  Gathered();
  manager_->EndEvaluation();
  EXPECT_EQ(Gathered(), initial) << "in the order of use";
  Step(sweep);
  EXPECT_EQ(manager_->stats().divergences, 0);
}

// Gemini's place in the trace is behind by every access of it (defect D8).
TEST_F(MemoryManagerPlanTest, AnEvaluationInsideAStepDoesNotDisturbIt) {
  Open(6, 3, 2);
  const std::vector<int> sweep = {0, 1, 2, 3, 4, 5, 4, 3, 2, 1, 0};
  Step(sweep);
  moves_->Clear();
  UseAll(sweep);
  moves_->NoteGathers();
  const std::vector<Move> undisturbed = moves_->moves;
  NextStep();
  for (size_t at = 0; at <= sweep.size(); ++at) {
    moves_->Clear();
    std::vector<Move> moves;
    for (size_t i = 0; i < sweep.size(); ++i) {
      if (i == at) {
        moves_->NoteGathers();
        moves = moves_->moves;
        manager_->BeginEvaluation();
        EXPECT_EQ(manager_->moment(), -1);
        manager_->BeginEvaluation();
        UseAll({5, 0, 3, 1});
        manager_->EndEvaluation();
        UseAll({2, 4});
        manager_->EndEvaluation();
        moves_->Clear();
      }
      Use(sweep[i]);
    }
    moves_->NoteGathers();
    moves.insert(moves.end(), moves_->moves.begin(), moves_->moves.end());
    EXPECT_EQ(moves, undisturbed) << "evaluation before use " << at;
    EXPECT_EQ(manager_->stats().divergences, 0);
    NextStep();
  }
}

TEST_F(MemoryManagerPlanTest, APinMayOutliveTheEvaluationItBeganIn) {
  Open(4, 3, 1);
  Step({0, 1, 2, 3});
  manager_->BeginEvaluation();
  ChunkPin pin = Take(3);
  manager_->EndEvaluation();
  pin.Release();  // between steps, and in no trace
  Step({0, 1, 2, 3});
  EXPECT_EQ(manager_->stats().divergences, 0);
  manager_->BeginEvaluation();
  pin = Take(3);
  manager_->EndEvaluation();
  Use(0);
  pin.Release();
  Step({1, 2, 3});
  EXPECT_EQ(manager_->stats().divergences, 0);
  EXPECT_THAT(manager_->planned_trace(), SizeIs(8));
}

TEST_F(MemoryManagerPlanTest, AUseMayEndInsideAnEvaluation) {
  Open(4, 2, 1);
  for (int step = 0; step < 3; ++step) {
    ChunkPin pin = Take(0);
    manager_->BeginEvaluation();
    Use(2);
    pin.Release();
    Use(3);
    manager_->EndEvaluation();
    UseAll({1, 2});
    NextStep();
    ASSERT_THAT(manager_->planned_trace(), SizeIs(6)) << "both or neither";
  }
  EXPECT_EQ(manager_->stats().divergences, 0);
}

TEST_F(MemoryManagerPlanTest, AbandonForgetsTheAccessesAndKeepsThePlan) {
  Open(6, 3, 2);
  const std::vector<int> sweep = {0, 1, 2, 3, 4, 5};
  UseAll({3, 1});
  manager_->AbandonStep();  // before there is a plan
  Step(sweep);
  EXPECT_THAT(manager_->planned_trace(), SizeIs(12));
  UseAll({0, 1, 2});
  Gathered();
  manager_->AbandonStep();
  EXPECT_THAT(Gathered(), Contains(0)) << "what comes first is fetched again";
  EXPECT_EQ(manager_->moment(), -1);
  Step(sweep);
  EXPECT_EQ(manager_->stats().divergences, 0);
  UseAll({5, 4});
  EXPECT_EQ(manager_->stats().divergences, 1);
  manager_->AbandonStep();
  Step(sweep);
  Step(sweep);
  EXPECT_EQ(manager_->stats().divergences, 1);
}

}  // namespace
}  // namespace castor
