// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Time and endings, without threads; the communicator's tests cover the rest.

#include "collectives/internal/in_process_world.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/internal/collective_call.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/event.h"
#include "tests/support/fake_clock.h"
#include "tests/support/manual_executor.h"
#include "tests/support/status_matchers.h"

namespace castor::internal {
namespace {

// A barrier that tells its position as its moment.
CollectiveCall Barrier(int64_t position) {
  CollectiveCall call;
  call.tag.moment = position;
  call.tag.purpose = "test";
  return call;
}

class InProcessWorldTest : public testing::Test {
 protected:
  Event Come(int64_t position, int rank) {
    const EventSource done;
    world_->Arrive(position, rank, Barrier(position), {}, done);
    return done.event();
  }

  ManualExecutor executor_;
  FakeClock clock_{1'000'000};
  std::shared_ptr<InProcessWorld> world_ =
      std::make_shared<InProcessWorld>(4, &executor_, &clock_, 100);
};

TEST_F(InProcessWorldTest, WaitsAsLongAsItIsTold) {
  const Event first = Come(0, 2);
  clock_.AdvanceNs(60);
  const Event second = Come(0, 0);  // does not start the time anew
  clock_.AdvanceNs(39);
  world_->CheckTimeout();
  EXPECT_FALSE(first.done());
  clock_.AdvanceNs(1);
  world_->CheckTimeout();
  const auto late =
      StatusIs(ErrorCode::kAborted,
               Says("ranks 1 and 3 did not", "operation 0", "moment 0"));
  EXPECT_THAT(first.status(), late);
  EXPECT_THAT(second.status(), late);
  EXPECT_THAT(world_->ended(), late);
  EXPECT_THAT(Come(0, 1).status(), late);
}

TEST_F(InProcessWorldTest, NamesTheOperationThatIsLate) {
  const Event second = Come(1, 0);
  clock_.AdvanceNs(50);
  const Event first = Come(0, 0);
  clock_.AdvanceNs(50);
  world_->CheckTimeout();  // only position 1 has waited long enough
  EXPECT_THAT(first.status(),
              StatusIs(ErrorCode::kAborted, Says("operation 1 of the world")));
  EXPECT_THAT(second.status(), StatusIs(ErrorCode::kAborted));
}

TEST_F(InProcessWorldTest, WhatHasMetIsNeverLate) {
  for (int rank = 0; rank < 4; ++rank) Come(0, rank);
  clock_.AdvanceNs(1000);
  world_->CheckTimeout();
  EXPECT_THAT(world_->ended(), IsOk());
}

TEST_F(InProcessWorldTest, WaitsForEverWithoutATimeout) {
  world_ = std::make_shared<InProcessWorld>(2, &executor_, &clock_, 0);
  const Event waiting = Come(0, 0);
  clock_.AdvanceNs(int64_t{1} << 60);
  world_->CheckTimeout();
  EXPECT_FALSE(waiting.done());
  world_->End(Aborted("end of test"));
  EXPECT_THAT(waiting.status(), StatusIs(ErrorCode::kAborted, "end of test"));
}

TEST_F(InProcessWorldTest, CallbacksOfItsEventsMayUseIt) {
  std::vector<Event> passed;
  for (int rank = 0; rank < 3; ++rank) passed.push_back(Come(0, rank));
  Event next;
  passed[0].OnDone([&](const Status&) { next = Come(1, 0); });
  Come(0, 3);
  for (const Event& event : passed) EXPECT_THAT(event.status(), IsOk());
  EXPECT_FALSE(next.done());
  Status ended;
  next.OnDone([&](const Status&) { ended = world_->ended(); });
  world_->End(Aborted("end of test"));
  EXPECT_THAT(ended, StatusIs(ErrorCode::kAborted, "end of test"));
}

TEST_F(InProcessWorldTest, ARankThatLeavesLaterIsNotMissed) {
  for (int rank = 0; rank < 3; ++rank) Come(0, rank);
  world_->Leave(3, 1);  // after its operation 0, which is still to come
  EXPECT_THAT(world_->ended(), IsOk());
  EXPECT_THAT(Come(0, 3).status(), IsOk());
  EXPECT_THAT(Come(1, 0).status(),
              StatusIs(ErrorCode::kAborted, Says("rank 3 has left")));
}

using InProcessWorldDeathTest = InProcessWorldTest;

TEST_F(InProcessWorldDeathTest, ComingTwiceIsADefect) {
  Come(0, 1);
  EXPECT_DEATH(Come(0, 1), "done");
}

}  // namespace
}  // namespace castor::internal
