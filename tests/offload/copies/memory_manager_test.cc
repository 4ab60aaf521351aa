// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory_manager.h"

#include <cstdint>
#include <string>
#include <utility>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/trace.h"
#include "tests/offload/copies/fake_chunk_source.h"
#include "tests/offload/copies/memory_manager_fixture.h"
#include "tests/support/fakes/fake_clock.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using MemoryManagerTest = MemoryManagerFixture;

TEST_F(MemoryManagerTest, ASlotIsReusedOnlyAfterTheWorkThatReadsIt) {
  Open(2, 1);
  ManualExecutor executor;
  {
    WorkerLane reader("reader", &executor);
    EventSource hold;
    {
      Result<ChunkPin> pin = manager_->Acquire(ChunkId(0), reader);
      ASSERT_THAT(pin, IsOk());
      reader.Wait(hold.event());
    }
    Use(1);  // does not block: a lane that runs at once sees the slot's bytes
    ASSERT_THAT(source_->slots, SizeIs(2));
    EXPECT_FALSE(source_->slots[1].free_after.done());
    executor.RunAll();
    EXPECT_FALSE(source_->slots[1].free_after.done());
    hold.Complete();
    executor.RunAll();
    EXPECT_TRUE(source_->slots[1].free_after.done());
  }
}

// As a loop of inference does.
TEST_F(MemoryManagerTest, UsesOutsideOfStepsAreTracedUpToABound) {
  policy_ = PlanPolicy::kPlanned;
  Open(4, 2);
  const auto step = [this] {
    manager_->EnterStep();
    UseAll({0, 1, 2, 3, 2, 1, 0});
    EXPECT_THAT(manager_->EndStep(), IsOk());
    manager_->BeginStep(1);
  };
  step();
  step();
  const Trace planned = manager_->planned_trace();
  const int64_t divergences = manager_->stats().divergences;
  EXPECT_EQ(planned.size(), 14u);
  for (int i = 0; i < 100'000; ++i) UseAll({0, 1, 2, 3});
  EXPECT_LE(manager_->moment(), manager_->most_outside_step());
  step();
  // The step is served by its plan, whatever came before.
  EXPECT_EQ(manager_->planned_trace(), planned);
  EXPECT_LE(manager_->stats().divergences, divergences + 1);
  // A use that a step begins in has its end outside of the trace, as its begin.
  for (int i = 0; i < 10'000; ++i) Use(0);
  {
    const ChunkPin held = Take(0);
    manager_->EnterStep();
    EXPECT_GT(manager_->moment(), 0);
  }
  EXPECT_THAT(manager_->EndStep(), IsOk());
  manager_->BeginStep(1);
  step();
  EXPECT_EQ(manager_->planned_trace(), planned);
}

TEST_F(MemoryManagerTest, NestedUsesPinUntilTheLastEnds) {
  Open(2, 1);
  ChunkPin outer = Take(0);
  ChunkPin inner = Take(0);
  outer.Release();
  EXPECT_TRUE(manager_->pinned());
  EXPECT_THAT(manager_->Acquire(ChunkId(1), lane_).status(),
              StatusIs(ErrorCode::kInfeasible));
  inner.Release();
  inner.Release();  // twice does nothing
  EXPECT_FALSE(manager_->pinned());
  Use(1);
}

TEST_F(MemoryManagerTest, APinThatIsMovedReleasesOnce) {
  Open(2, 2);
  ChunkPin pin = Take(0);
  ChunkPin other = std::move(pin);
  pin.Release();
  EXPECT_TRUE(manager_->pinned());
  EXPECT_EQ(other.chunk(), ChunkId(0));
  other = Take(1);
  EXPECT_EQ(other.chunk(), ChunkId(1));
  other = ChunkPin();
  EXPECT_FALSE(manager_->pinned());
}

TEST_F(MemoryManagerTest, HoldingMoreThanThereAreSlotsNamesWhatIsHeld) {
  Open(4, 2);
  ChunkPin pin = Take(2);
  Result<Slot> grad = manager_->OpenGrad(ChunkId(3));
  ASSERT_THAT(grad, IsOk());
  EXPECT_THAT(
      manager_->Acquire(ChunkId(0), lane_).status(),
      StatusIs(
          ErrorCode::kInfeasible,
          AllOf(HasSubstr("chunk 0 needs a gathered slot of 512 bytes"),
                HasSubstr("all 2 are held"), HasSubstr("chunk 2 (parameters)"),
                HasSubstr("chunk 3 (gradient)"),
                HasSubstr("or hold less at once"))));
  EXPECT_THAT(manager_->OpenGrad(ChunkId(1)).status(),
              StatusIs(ErrorCode::kInfeasible));
  EXPECT_EQ(in_use(), kSlot * 2);
  manager_->CloseGrad(ChunkId(3), *grad, Event());
  pin.Release();
  // What was refused is not in the step: the plan made of it is feasible.
  Use(0);
  ASSERT_THAT(manager_->EndStep(), IsOk());
  EXPECT_THAT(manager_->planned_trace(),
              ElementsAre(Access{AccessKind::kUse, ChunkId(2)},
                          Access{AccessKind::kGradOpen, ChunkId(3)},
                          Access{AccessKind::kGradClose, ChunkId(3)},
                          Access{AccessKind::kUseEnd, ChunkId(2)},
                          Access{AccessKind::kUse, ChunkId(0)},
                          Access{AccessKind::kUseEnd, ChunkId(0)}));
}

TEST_F(MemoryManagerTest, OnlyChunksOfTheClassThatIsFullAreNamed) {
  PlanProblem problem;
  problem.param_class = {0, 1, 1};
  problem.grad_class = {0, 1, 1};
  problem.fetch_cost = {1, 1, 1};
  problem.survives_step = {false, false, false};
  problem.slots = {1, 1};
  Open(problem);
  const ChunkPin a = Take(0);
  const ChunkPin b = Take(1);
  EXPECT_THAT(
      manager_->Acquire(ChunkId(2), lane_).status(),
      StatusIs(ErrorCode::kInfeasible, AllOf(HasSubstr("chunk 1 (parameters)"),
                                             Not(HasSubstr("chunk 0")))));
}

TEST_F(MemoryManagerTest, GradientsTakeSlotsAndDropCopiesForThem) {
  Open(3, 2);
  UseAll({0, 1});
  const Slot grad = *manager_->OpenGrad(ChunkId(1));
  const Slot other = *manager_->OpenGrad(ChunkId(0));
  EXPECT_EQ(in_use(), kSlot * 2);
  EXPECT_EQ(manager_->stats().releases, 2);
  EventSource reduced;
  manager_->CloseGrad(ChunkId(1), grad, reduced.event());
  manager_->CloseGrad(ChunkId(0), other, Event());
  Gathered();
  UseAll({2, 1});
  EXPECT_FALSE(source_->slots[2].free_after.done() &&
               source_->slots[3].free_after.done())
      << "one of the slots is being reduced from";
  reduced.Complete();
  NextStep();
}

TEST_F(MemoryManagerTest, WorkBetweenStepsBorrowsASlotOfTheChunksClass) {
  Open(2, 2);
  UseAll({0, 1});
  const Slot slot = *manager_->BorrowSlot(ChunkId(0));
  EXPECT_EQ(manager_->stats().releases, 1) << "one copy made room";
  const Slot second = *manager_->BorrowSlot(ChunkId(1));
  EXPECT_THAT(manager_->BorrowSlot(ChunkId(1)).status(),
              StatusIs(ErrorCode::kInfeasible));
  manager_->ReturnSlot(slot, Event());
  manager_->ReturnSlot(second, Event());
  EXPECT_EQ(in_use(), Bytes(0));
}

TEST_F(MemoryManagerTest, DropAllLeavesWhatIsPinned) {
  Open(3, 3);
  UseAll({0, 1});
  const ChunkPin pin = Take(2);
  manager_->DropAll(RunCause::kStale);
  EXPECT_EQ(in_use(), kSlot);
  EXPECT_EQ(StampAt(pin.data()).chunk, 2);
}

TEST_F(MemoryManagerTest, ChunksAtHomeOnTheDeviceTakeNoSlot) {
  PlanProblem problem;
  problem.param_class = {kNoSlotClass, 0};
  problem.grad_class = {0, 0};
  problem.fetch_cost = {1, 1};
  problem.survives_step = {false, false};
  problem.slots = {1};
  problem.prefetch.depth = 2;
  Open(problem);
  for (int step = 0; step < 3; ++step) {
    const ChunkPin a = Take(0);
    const ChunkPin b = Take(0);
    const ChunkPin c = Take(1);
    EXPECT_EQ(in_use(), kSlot);
  }
  EXPECT_THAT(source_->direct_used[0], SizeIs(6)) << "one per use";
  NextStep();
  EXPECT_EQ(manager_->stats().gathers, 1 + 1);  // and ahead for the next step
}

TEST_F(MemoryManagerTest, ALaneWaitsForADirectChunkAndItsUserIsTold) {
  PlanProblem problem;
  problem.param_class = {kNoSlotClass};
  problem.grad_class = {0};
  problem.fetch_cost = {1};
  problem.survives_step = {false};
  problem.slots = {1};
  Open(problem);
  ManualExecutor executor;
  WorkerLane lane("compute", &executor);
  EventSource updated;
  source_->direct_ready = updated.event();
  { Result<ChunkPin> pin = manager_->Acquire(ChunkId(0), lane); }
  ASSERT_THAT(source_->direct_used[0], SizeIs(1));
  executor.RunAll();
  EXPECT_FALSE(source_->direct_used[0][0].done());
  clock_.AdvanceNs(30);
  updated.Complete();
  executor.RunAll();
  EXPECT_TRUE(source_->direct_used[0][0].done());
  EXPECT_EQ(StallsOf(RunCause::kOptimizer), (StallSum{1, 30}));
}

TEST_F(MemoryManagerTest, WaitsAreTimedFromWhenTheLaneGetsThere) {
  Open(2, 2);
  ManualExecutor executor;
  WorkerLane copies("copies", &executor);
  WorkerLane lane("compute", &executor);
  source_->lane = &copies;
  EventSource drive;
  copies.Wait(drive.event());
  { Result<ChunkPin> pin = manager_->Acquire(ChunkId(0), lane); }
  clock_.AdvanceNs(1000);  // nobody waits yet
  executor.RunAll();
  clock_.AdvanceNs(70);
  drive.Complete();
  executor.RunAll();
  EXPECT_EQ(StallsOf(RunCause::kDemand), (StallSum{1, 70}));
  ASSERT_EQ(moves_->Count(RunEventKind::kStall), 1);
  for (const RunEvent& event : moves_->events) {
    if (event.kind != RunEventKind::kStall) continue;
    EXPECT_EQ(event.cause, RunCause::kDemand);
    EXPECT_EQ(event.begin_ns, 1000);
    EXPECT_EQ(event.end_ns, 1070);
    EXPECT_EQ(event.chunk, 0);
    EXPECT_EQ(event.moment, 0);
    EXPECT_EQ(event.rank, 2);
  }
}

TEST_F(MemoryManagerTest, ACopyThatIsThereWhenTheLaneGetsThereIsNoStall) {
  Open(2, 2);
  ManualExecutor executor;
  WorkerLane copies("copies", &executor);
  WorkerLane lane("compute", &executor);
  source_->lane = &copies;
  { Result<ChunkPin> pin = manager_->Acquire(ChunkId(0), lane); }
  clock_.AdvanceNs(10);
  executor.RunAll();  // the copy's turn was posted first
  EXPECT_EQ(StallsOf(RunCause::kDemand), StallSum{});
}

// A lane over a trainer's stream, on which the caller waits for what the host
// has still to queue: a number of nanoseconds at each wait.
class BlockingStream final : public Lane {
 public:
  BlockingStream(FakeClock* clock, int64_t wait_ns)
      : clock_(clock), wait_ns_(wait_ns) {}

  void Wait(const Event&) override { clock_->AdvanceNs(wait_ns_); }
  void Run(Work work) override { lane_.Run(std::move(work)); }
  void RunAsync(AsyncWork work) override { lane_.RunAsync(std::move(work)); }
  bool runs_on_host() const override { return false; }
  Event Record() override { return lane_.Record(); }
  Status status() const override { return lane_.status(); }
  const std::string& name() const override { return lane_.name(); }

 private:
  FakeClock* const clock_;
  const int64_t wait_ns_;
  ThreadLane lane_{"stream"};
};

TEST_F(MemoryManagerTest, WithoutARecordACallersWaitIsCounted) {
  records_ = false;
  for (const int64_t wait_ns : {int64_t{40'000}, int64_t{100}}) {
    Open(2, 2);
    ManualExecutor executor;
    WorkerLane copies("copies", &executor);
    source_->lane = &copies;
    BlockingStream stream(&clock_, wait_ns);
    { Result<ChunkPin> pin = manager_->Acquire(ChunkId(0), stream); }
    // A call that returns at once is no wait.
    EXPECT_EQ(StallsOf(RunCause::kDemand),
              wait_ns > 1000 ? (StallSum{1, wait_ns}) : StallSum{});
    executor.RunAll();
    { Result<ChunkPin> pin = manager_->Acquire(ChunkId(0), stream); }
    EXPECT_LE(StallsOf(RunCause::kDemand).count, 1);
    manager_.reset();
  }
}

TEST_F(MemoryManagerTest, AFailedGatherFailsTheLaneThatWaitsForIt) {
  Open(2, 2);
  ThreadLane copies("copies");
  copies.Run([] { return DataLoss("bytes are not what was written"); });
  source_->lane = &copies;
  const Result<ChunkPin> pin = manager_->Acquire(ChunkId(0), lane_);
  EXPECT_THAT(lane_.status(), StatusIs(ErrorCode::kDataLoss));
  EXPECT_EQ(StallsOf(RunCause::kDemand), StallSum{});
}

TEST_F(MemoryManagerTest, UsesAndBytesAreRecorded) {
  Open(2, 2);
  clock_.AdvanceNs(5);
  {
    const ChunkPin pin = Take(1);
    clock_.AdvanceNs(20);
  }
  ASSERT_EQ(moves_->Count(RunEventKind::kUse), 1);
  const RunEvent& use = moves_->events.back();
  EXPECT_EQ(use.kind, RunEventKind::kUse);
  EXPECT_EQ(use.chunk, 1);
  EXPECT_EQ(use.begin_ns, 5);
  EXPECT_EQ(use.end_ns, 25);
  EXPECT_EQ(use.step, 1);
  ASSERT_EQ(moves_->events.front().kind, RunEventKind::kTierBytes);
  EXPECT_EQ(moves_->events.front().bytes, 512);
  EXPECT_EQ(moves_->events.front().to, Tier::kDevice);
}

TEST_F(MemoryManagerTest, GivesItsSlotsBackAtTheEnd) {
  Open(3, 3);
  UseAll({0, 1, 2});
  EXPECT_EQ(in_use(), kSlot * 3);
  manager_.reset();
  EXPECT_EQ(in_use(), Bytes(0));
}

using MemoryManagerDeathTest = MemoryManagerTest;

TEST_F(MemoryManagerDeathTest, AStepDoesNotEndWhileAnythingIsPinned) {
  Open(2, 2);
  const ChunkPin pin = Take(0);
  EXPECT_DEATH(manager_->EndStep().IgnoreError(), "pins_held_");
}

}  // namespace
}  // namespace castor
