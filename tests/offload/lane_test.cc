// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The turns of lanes. What every lane promises, the contract of devices asks
// (device_contract.h), and lane_stress_test.cc.

#include "offload/lane.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;

// A hand-cranked executor and what ran on it, in order.
class WorkerLaneTest : public testing::Test {
 protected:
  // Work that writes `name` down and ends with `status`.
  Lane::Work Note(std::string name, Status status = OkStatus()) {
    return [this, name = std::move(name), status] {
      ran_.push_back(name);
      return status;
    };
  }

  ManualExecutor executor_;
  std::vector<std::string> ran_;
};

TEST_F(WorkerLaneTest, RunsReadyOperationsInOrderInOneTurn) {
  WorkerLane lane("a", &executor_);
  lane.Run(Note("1"));
  lane.Run(Note("2"));
  lane.RunAsync([](EventSource source) { source.Complete(); });
  lane.Run(Note("3"));
  const Event recorded = lane.Record();
  EXPECT_TRUE(ran_.empty());
  EXPECT_EQ(executor_.pending(), 1u);
  EXPECT_TRUE(executor_.RunOne());
  EXPECT_THAT(ran_, ElementsAre("1", "2", "3"));
  EXPECT_THAT(recorded.status(), IsOk());
  EXPECT_EQ(executor_.pending(), 0u);
}

TEST_F(WorkerLaneTest, ALongQueueLeavesTurnsToOtherLanes) {
  WorkerLane busy("busy", &executor_);
  WorkerLane other("other", &executor_);
  for (int i = 0; i < 1000; ++i) busy.Run(Note("busy"));
  other.Run(Note("other"));
  executor_.RunOne();
  executor_.RunOne();
  EXPECT_EQ(ran_.back(), "other");
  EXPECT_LT(ran_.size(), 1000u);
  executor_.RunAll();
  EXPECT_EQ(ran_.size(), 1001u);
}

TEST_F(WorkerLaneTest, AnIdleLaneRecordsADoneEvent) {
  WorkerLane lane("a", &executor_);
  EXPECT_TRUE(lane.Record().done());
  lane.Run(Note("1"));
  executor_.RunAll();
  EXPECT_TRUE(lane.Record().done());
  EXPECT_EQ(executor_.pending(), 0u);
}

TEST_F(WorkerLaneTest, RecordsCompleteWhenWhatWasBeforeThemRan) {
  WorkerLane lane("a", &executor_);
  const EventSource gate1;
  const EventSource gate2;
  lane.Run(Note("1"));
  const Event first = lane.Record();
  lane.Wait(gate1.event());
  lane.Run(Note("2"));
  const Event second = lane.Record();
  lane.Wait(gate2.event());
  const Event third = lane.Record();
  executor_.RunAll();
  EXPECT_TRUE(first.done());
  EXPECT_FALSE(second.done());
  gate2.Complete();  // too early for the lane to care
  executor_.RunAll();
  EXPECT_FALSE(second.done());
  EXPECT_FALSE(third.done());
  gate1.Complete();
  executor_.RunAll();
  EXPECT_THAT(ran_, ElementsAre("1", "2"));
  EXPECT_TRUE(second.done());
  EXPECT_TRUE(third.done());
}

TEST_F(WorkerLaneTest, WaitingForADoneEventCostsNoTurn) {
  WorkerLane lane("a", &executor_);
  lane.Wait(Event());
  EXPECT_EQ(executor_.pending(), 0u);
}

// The race of completion with Wait, both ways round, at each of its steps.

TEST_F(WorkerLaneTest, CompletionBeforeWaitIsQueued) {
  const EventSource source;
  source.Complete();
  WorkerLane lane("a", &executor_);
  lane.Wait(source.event());
  lane.Run(Note("1"));
  EXPECT_TRUE(executor_.RunOne());
  EXPECT_THAT(ran_, ElementsAre("1"));
}

TEST_F(WorkerLaneTest, CompletionBetweenQueueingAndReachingAWait) {
  const EventSource source;
  WorkerLane lane("a", &executor_);
  lane.Wait(source.event());
  lane.Run(Note("1"));
  source.Complete();
  EXPECT_EQ(executor_.pending(), 1u);
  EXPECT_TRUE(executor_.RunOne());
  EXPECT_THAT(ran_, ElementsAre("1"));
}

TEST_F(WorkerLaneTest, CompletionAfterTheLaneWasSuspended) {
  const EventSource source;
  WorkerLane lane("a", &executor_);
  lane.Wait(source.event());
  lane.Run(Note("1"));
  executor_.RunAll();
  EXPECT_EQ(executor_.pending(), 0u);  // suspended: no thread is held
  EXPECT_TRUE(ran_.empty());
  lane.Run(Note("2"));  // a suspended lane is not started by new work
  EXPECT_EQ(executor_.pending(), 0u);
  source.Complete();
  EXPECT_TRUE(ran_.empty());  // the completing thread does not run the lane
  EXPECT_EQ(executor_.pending(), 1u);
  executor_.RunAll();
  EXPECT_THAT(ran_, ElementsAre("1", "2"));
}

TEST_F(WorkerLaneTest, CompletionBySomethingEarlierInTheSameTurn) {
  const EventSource source;
  WorkerLane lane("a", &executor_);
  lane.Run([&] {
    source.Complete();
    return OkStatus();
  });
  lane.Wait(source.event());
  lane.Run(Note("1"));
  EXPECT_TRUE(executor_.RunOne());
  EXPECT_THAT(ran_, ElementsAre("1"));
}

TEST_F(WorkerLaneTest, AsyncWorkHoldsTheLaneButNoThread) {
  WorkerLane lane("a", &executor_);
  std::optional<EventSource> pending;
  lane.RunAsync([&](EventSource source) {
    ran_.push_back("started");
    pending = std::move(source);
  });
  lane.Run(Note("after"));
  executor_.RunAll();
  EXPECT_THAT(ran_, ElementsAre("started"));
  pending->Complete();
  executor_.RunAll();
  EXPECT_THAT(ran_, ElementsAre("started", "after"));
}

TEST_F(WorkerLaneTest, AsyncWorkThatDropsItsSourceFailsTheLane) {
  WorkerLane lane("a", &executor_);
  lane.RunAsync([](EventSource) {});
  lane.Run(Note("after"));
  executor_.RunAll();
  EXPECT_TRUE(ran_.empty());
  EXPECT_THAT(lane.status(), StatusIs(ErrorCode::kInternal));
}

TEST_F(WorkerLaneTest, AsyncWorkThatKeepsItsSourceInItselfFailsTheLane) {
  WorkerLane lane("a", &executor_);
  struct Keeper {
    void operator()(EventSource source) { kept = std::move(source); }
    std::optional<EventSource> kept;
  };
  lane.RunAsync(Keeper());
  executor_.RunAll();
  EXPECT_THAT(lane.status(), StatusIs(ErrorCode::kInternal));
}

TEST_F(WorkerLaneTest, OnFailureMayQueueOnItsLane) {
  WorkerLane* self = nullptr;
  Event cleanup;
  WorkerLane lane("a", &executor_,
                  [&](const Status&) { cleanup = self->Record(); });
  self = &lane;
  lane.Run(Note("1", IoError("disk")));
  executor_.RunAll();
  EXPECT_THAT(cleanup.status(), StatusIs(ErrorCode::kIoError));
}

TEST_F(WorkerLaneTest, ASuspendedLaneFailsWithWhatItWaitsFor) {
  Status reported;
  WorkerLane lane("a", &executor_,
                  [&](const Status& status) { reported = status; });
  const EventSource source;
  lane.Wait(source.event());
  lane.Run(Note("1"));
  executor_.RunAll();
  source.Complete(IoError("disk"));
  EXPECT_THAT(reported, IsOk());  // said on the executor, not by the completer
  executor_.RunAll();
  EXPECT_THAT(reported, StatusIs(ErrorCode::kIoError));
  EXPECT_TRUE(ran_.empty());
}

TEST_F(WorkerLaneTest, LetsGoOfAClosureBeforeTheNextRuns) {
  WorkerLane lane("a", &executor_);
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = held;
  bool gone_after_work = false;
  bool gone_after_skip = false;
  lane.Run([held] {
    ++*held;
    return OkStatus();
  });
  held.reset();
  lane.Run([&] {
    gone_after_work = watched.expired();
    return IoError("disk");
  });
  auto skipped = std::make_shared<int>(0);
  const std::weak_ptr<int> watch_skipped = skipped;
  lane.Run([skipped = std::move(skipped)] {
    ++*skipped;
    return OkStatus();
  });
  lane.Record().OnDone(
      [&](const Status&) { gone_after_skip = watch_skipped.expired(); });
  executor_.RunAll();
  EXPECT_TRUE(gone_after_work);
  EXPECT_TRUE(gone_after_skip);
}

TEST_F(WorkerLaneTest, LongChainsDoNotRecurse) {
  // Each lane waits for the one before it; one completion starts them all.
  constexpr int kLanes = 20'000;
  const EventSource gate;
  std::vector<std::unique_ptr<WorkerLane>> lanes;
  Event previous = gate.event();
  for (int i = 0; i < kLanes; ++i) {
    lanes.push_back(std::make_unique<WorkerLane>("lane", &executor_));
    lanes.back()->Wait(previous);
    previous = lanes.back()->Record();
  }
  executor_.RunAll();
  gate.Complete(IoError("disk"));
  executor_.RunAll();
  EXPECT_THAT(previous.status(), StatusIs(ErrorCode::kIoError));
}

TEST(WorkerLaneDeathTest, WorkThatThrowsEndsTheProcess) {
  EXPECT_DEATH(
      {
        ManualExecutor executor;
        WorkerLane lane("a", &executor);
        lane.Run([]() -> Status { throw 1; });
        executor.RunAll();
      },
      "");
}

TEST(WorkerLaneDeathTest, DestroyingALaneFromItsOwnWorkIsADefect) {
  EXPECT_DEATH(
      {
        ManualExecutor executor;
        auto lane = std::make_unique<WorkerLane>("a", &executor);
        lane->Run([&] {
          lane.reset();
          return OkStatus();
        });
        executor.RunAll();
      },
      "runner");
}

TEST(ThreadLaneTest, RunsAtOnceOnTheCaller) {
  ThreadLane lane("trainer");
  EXPECT_EQ(lane.name(), "trainer");
  std::thread::id id;
  lane.Run([&] {
    id = std::this_thread::get_id();
    return OkStatus();
  });
  EXPECT_EQ(id, std::this_thread::get_id());
  EXPECT_TRUE(lane.Record().done());
  EXPECT_THAT(lane.Drain(), IsOk());
}

TEST(ThreadLaneTest, BlocksUntilEventsAndAsyncWorkAreDone) {
  ThreadPool pool(1);
  ThreadLane lane("trainer");
  int done = 0;
  lane.RunAsync([&](EventSource source) {
    pool.Post([&done, source] {
      ++done;
      source.Complete();
    });
  });
  EXPECT_EQ(done, 1);
  const EventSource other;
  pool.Post([&done, other] {
    ++done;
    other.Complete();
  });
  lane.Wait(other.event());
  EXPECT_EQ(done, 2);
}

TEST(ThreadLaneTest, TheFirstFailureSticks) {
  int reported = 0;
  ThreadLane lane("trainer", [&](const Status& status) {
    EXPECT_THAT(status, StatusIs(ErrorCode::kIoError, "first"));
    ++reported;
  });
  int ran = 0;
  lane.Run([] { return IoError("first"); });
  lane.Run([&] {
    ++ran;
    return OkStatus();
  });
  lane.RunAsync([&](EventSource source) {
    ++ran;
    source.Complete();
  });
  lane.Wait(Event::Failed(IoError("second")));
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(reported, 1);
  EXPECT_THAT(lane.Record().status(), StatusIs(ErrorCode::kIoError, "first"));
  EXPECT_THAT(lane.Drain(), StatusIs(ErrorCode::kIoError, "first"));
}

TEST(ThreadLaneTest, AsyncWorkThatDropsItsSourceFailsTheLane) {
  ThreadLane lane("trainer");
  lane.RunAsync([](EventSource) {});
  EXPECT_THAT(lane.status(), StatusIs(ErrorCode::kInternal));
}

}  // namespace
}  // namespace castor
