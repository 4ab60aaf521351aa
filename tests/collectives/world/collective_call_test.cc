// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/world/collective_call.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/rank_scope.h"
#include "collectives/world/data_movement.h"
#include "collectives/world/in_process_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "tests/support/fakes/fake_clock.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/rank_values.h"
#include "tests/support/status_matchers.h"

namespace castor::internal {
namespace {

CollectiveCall Gather() {
  return {.kind = CollectiveKind::kAllGather,
          .tag = {.chunk = ChunkId(3), .moment = 11, .purpose = "param"},
          .count = 4096,
          .dtype = DType::kF32};
}

TEST(CollectiveCallTest, CallsAreTheSameWhenEverythingIs) {
  const CollectiveCall call = Gather();
  CollectiveCall other = Gather();
  const std::string elsewhere = "param";  // the same text at another address
  other.tag.purpose = elsewhere;
  EXPECT_TRUE(SameCall(call, other));

  std::vector<CollectiveCall> others(10, call);
  others[0].kind = CollectiveKind::kReduceScatter;
  others[1].tag.chunk = ChunkId();
  others[2].tag.moment = 12;
  others[3].tag.purpose = "grad";
  others[4].count = 4095;
  others[5].dtype = DType::kI32;
  others[6].op = ReduceOp::kMax;
  others[7].root = 1;
  others[8].tag.scope.group = 2;
  others[9].tag.scope.among = Among::kGroup;
  for (const CollectiveCall& each : others) EXPECT_FALSE(SameCall(call, each));
}

TEST(CollectiveCallTest, SaysWhatItIs) {
  CollectiveCall call = Gather();
  EXPECT_EQ(Describe(call),
            "all-gather of chunk 3 at moment 11 (\"param\", 4096 F32 elements "
            "per rank)");
  call.tag.scope = {Among::kGroup, 4};
  EXPECT_EQ(Describe(call),
            "all-gather of chunk 3 at moment 11 (\"param\", 4096 F32 elements "
            "per rank, in groups of 4)");
  call.tag.scope.among = Among::kReplicas;
  EXPECT_THAT(Describe(call), Says("per rank, across groups of 4)"));
  call.tag.scope.among = Among::kWorld;
  EXPECT_THAT(Describe(call), Says("per rank, sliced for groups of 4)"));
  call.tag.scope = {};
  call.kind = CollectiveKind::kReduceScatter;
  EXPECT_THAT(Describe(call), Says("reduce-scatter of chunk 3"));

  call = CollectiveCall();
  call.kind = CollectiveKind::kAllReduce;
  call.tag.purpose = "norm";
  call.count = 34;
  call.dtype = DType::kU64;
  call.op = ReduceOp::kMin;
  EXPECT_EQ(Describe(call), "all-reduce (\"norm\", min of 34 U64 elements)");

  call = CollectiveCall();
  call.kind = CollectiveKind::kBroadcast;
  call.tag.moment = 0;
  call.tag.purpose = "plan";
  call.count = 99;
  call.root = 2;
  EXPECT_EQ(Describe(call),
            "broadcast at moment 0 (\"plan\", 99 bytes from rank 2)");

  call = CollectiveCall();
  call.tag.purpose = "seal";
  EXPECT_EQ(Describe(call), "barrier (\"seal\")");
}

TEST(CollectiveCallTest, NamesRanksInRuns) {
  EXPECT_EQ(DescribeRanks(std::vector{4}), "rank 4");
  EXPECT_EQ(DescribeRanks(std::vector{4, 6}), "ranks 4 and 6");
  EXPECT_EQ(DescribeRanks(std::vector{0, 1, 2, 5}), "ranks 0-2 and 5");
  EXPECT_EQ(DescribeRanks(std::vector{0, 2, 3, 62, 63}),
            "ranks 0, 2-3 and 62-63");
}

TEST(CollectiveCallTest, ErrorsNameRankChunkAndMoment) {
  CollectiveCall other = Gather();
  other.tag.chunk = ChunkId(4);
  other.tag.moment = 12;
  EXPECT_THAT(
      MismatchError(57, 1, other, 0, Gather()),
      StatusIs(ErrorCode::kFailedPrecondition,
               Says("operation 57",
                    "rank 1 calls all-gather of chunk 4 at moment 12",
                    "rank 0 calls all-gather of chunk 3 at moment 11")));
  EXPECT_THAT(
      TimeoutError(57, Gather(), std::vector{2, 3}, 1'500'000'000),
      StatusIs(ErrorCode::kAborted, Says("ranks 2-3 did not come",
                                         "chunk 3 at moment 11", "in 1.5 s")));
  EXPECT_THAT(LeftError(57, Gather(), 2),
              StatusIs(ErrorCode::kAborted,
                       Says("rank 2 has left", "chunk 3 at moment 11")));
  EXPECT_THAT(SkippedError(57, Gather(), 2),
              StatusIs(ErrorCode::kAborted,
                       Says("rank 2 skips", "chunk 3 at moment 11")));
}

// That the parts of a call may run in any order, in place; the communicator's
// contract suite covers what they compute.

constexpr int kWorld = 4;
constexpr int64_t kShard = 33;

CollectiveCall Call(CollectiveKind kind, int64_t count) {
  CollectiveCall call;
  call.kind = kind;
  call.count = count;
  call.dtype = DType::kF32;
  return call;
}

using Data = std::vector<std::vector<float>>;  // by rank

std::vector<RankBuffers> Whole(Data& data) {
  std::vector<RankBuffers> buffers;
  for (auto& each : data) buffers.push_back({each.data(), each.data()});
  return buffers;
}

// Where each rank's slice is.
RankScope scope;

std::vector<RankBuffers> FromSlice(Data& data) {
  std::vector<RankBuffers> buffers = Whole(data);
  for (int rank = 0; rank < kWorld; ++rank) {
    const auto r = static_cast<size_t>(rank);
    buffers[r].in = SliceOf(data[r], scope.place(rank, kWorld), kShard);
  }
  return buffers;
}

std::vector<RankBuffers> ToSlice(Data& data) {
  std::vector<RankBuffers> buffers = Whole(data);
  for (int rank = 0; rank < kWorld; ++rank) {
    const auto r = static_cast<size_t>(rank);
    buffers[r].out = SliceOf(data[r], scope.place(rank, kWorld), kShard);
  }
  return buffers;
}

// Runs the parts of `call` in every order on fresh data, and expects the same
// bytes each time.
void ExpectAnyOrder(const CollectiveCall& call,
                    std::vector<RankBuffers> (*buffers_of)(Data&)) {
  std::vector<int> order(kWorld);
  std::iota(order.begin(), order.end(), 0);
  Data first;
  do {
    Data data;
    for (int rank = 0; rank < kWorld; ++rank) {
      data.push_back(MakeFloats(rank, kShard * kWorld));
    }
    const std::vector<RankBuffers> buffers = buffers_of(data);
    for (const int rank : order) MoveForRank(call, rank, buffers);
    if (first.empty()) first = data;
    for (size_t r = 0; r < kWorld; ++r) {
      ASSERT_TRUE(SameBits(data[r], first[r]));
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(DataMovementTest, MovesAmongGroupsInPlaceInAnyOrder) {
  for (const Among among : {Among::kWorld, Among::kGroup, Among::kReplicas}) {
    for (const int group : {1, 2, 4}) {
      scope = {among, group};
      CollectiveCall call = Call(CollectiveKind::kAllGather, kShard);
      call.tag.scope = scope;
      ExpectAnyOrder(call, FromSlice);
      call.kind = CollectiveKind::kReduceScatter;
      ExpectAnyOrder(call, ToSlice);
    }
  }
  scope = RankScope();
}

TEST(DataMovementTest, AllReducesInAnyOrder) {
  // Fewer elements than ranks leave some parts with nothing to do.
  for (const int64_t count : {int64_t{1}, int64_t{3}, kShard * kWorld}) {
    ExpectAnyOrder(Call(CollectiveKind::kAllReduce, count), Whole);
  }
}

TEST(DataMovementTest, BroadcastsInAnyOrder) {
  CollectiveCall call = Call(CollectiveKind::kBroadcast, 100);
  call.root = 2;
  ExpectAnyOrder(call, Whole);
}

TEST(DataMovementTest, AllReduceGivesAndTakesTheSame) {
  Data data(kWorld, std::vector<float>(10));
  const auto buffers = Whole(data);
  const CollectiveCall call = Call(CollectiveKind::kAllReduce, 10);
  Bytes sent;
  Bytes received;
  for (int rank = 0; rank < kWorld; ++rank) {
    sent += Traffic(call, rank, buffers).bytes_sent;
    received += Traffic(call, rank, buffers).bytes_received;
  }
  EXPECT_EQ(sent, received);
  // Each element goes from three ranks to the one that reduces it, and back.
  EXPECT_EQ(sent, Bytes(10 * 4 * 3 * 2));
}

TEST(DataMovementTest, CountsWhatAllPartsWrite) {
  const Bytes shard(8 * 4);
  EXPECT_EQ(BytesWritten(Call(CollectiveKind::kAllGather, 8), 4), shard * 16);
  CollectiveCall in_groups = Call(CollectiveKind::kAllGather, 8);
  in_groups.tag.scope = {Among::kGroup, 2};
  EXPECT_EQ(BytesWritten(in_groups, 4), shard * 8);
  EXPECT_EQ(BytesWritten(Call(CollectiveKind::kReduceScatter, 8), 4),
            shard * 4);
  EXPECT_EQ(BytesWritten(Call(CollectiveKind::kAllReduce, 8), 4), shard * 4);
  EXPECT_EQ(BytesWritten(Call(CollectiveKind::kBroadcast, 8), 4), Bytes(32));
  EXPECT_EQ(BytesWritten(Call(CollectiveKind::kBarrier, 0), 4), Bytes(0));
}

// Time and endings, without threads; the communicator's tests cover the rest.

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

TEST_F(InProcessWorldTest, CountsNoTimeInWhichNobodyRan) {
  const Event first = Come(0, 2);
  clock_.AdvanceNs(60);
  clock_.AdvanceNs(5000);  // the process is stopped
  world_->Forget(5000);
  world_->CheckTimeout();
  clock_.AdvanceNs(39);
  world_->CheckTimeout();
  EXPECT_FALSE(first.done());
  clock_.AdvanceNs(1);
  world_->CheckTimeout();
  EXPECT_THAT(first.status(), StatusIs(ErrorCode::kAborted));
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

using InProcessWorldDeathTest = InProcessWorldTest;

TEST_F(InProcessWorldDeathTest, ComingTwiceIsADefect) {
  Come(0, 1);
  EXPECT_DEATH(Come(0, 1), "done");
}

}  // namespace
}  // namespace castor::internal
