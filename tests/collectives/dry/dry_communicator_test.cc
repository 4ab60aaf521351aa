// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/dry/dry_communicator.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/rank_scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/solo_executor.h"
#include "placement/tier_model.h"
#include "placement/timeline/meetings.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;

class DryCommunicatorTest : public testing::Test {
 protected:
  std::unique_ptr<Communicator> Make(int world, bool timed = true) {
    DryCommunicatorOptions options{.world = world,
                                   .rank = 1,
                                   .executor = &world_,
                                   .timer = &world_,
                                   .meetings = &meetings_};
    if (timed) {
      options.all_gather = RingModel{1'000'000'000, 5};
      options.reduce_scatter = RingModel{500'000'000, 5};
    }
    return MakeDryCommunicator(options);
  }

  SoloExecutor world_;
  internal::Meetings meetings_;
  WorkerLane lane_{"lane", &world_};
  const CollectiveTag tag_{ChunkId(0), 0, "param"};
};

TEST_F(DryCommunicatorTest, ExchangesTakeTheTimeOfRingsAndCountWhatIsSent) {
  const auto ranks = Make(4);
  // Addresses are not looked at.
  ranks->AllGather(lane_, nullptr, nullptr, Elements(1000), DType::kF32, tag_);
  EXPECT_THAT(lane_.Drain(), IsOk());
  // Three steps of a shard each.
  EXPECT_EQ(world_.NowNs(), 3 * (4000 + 5));
  EXPECT_EQ(ranks->stats().bytes_sent, Bytes(12'000));
  ranks->ReduceScatter(lane_, nullptr, nullptr, Elements(1000), DType::kBF16,
                       tag_);
  EXPECT_THAT(lane_.Drain(), IsOk());
  EXPECT_EQ(world_.NowNs(), 3 * (4000 + 5) + 3 * (4000 + 5));
  EXPECT_EQ(ranks->stats().bytes_sent, Bytes(18'000));
  // Inside groups of two, one step.
  CollectiveTag inside = tag_;
  inside.scope = {Among::kGroup, 2};
  ranks->AllGather(lane_, nullptr, nullptr, Elements(1000), DType::kF32,
                   inside);
  EXPECT_THAT(lane_.Drain(), IsOk());
  EXPECT_EQ(world_.NowNs(), 7 * (4000 + 5));
  EXPECT_EQ(ranks->stats().operations, 3);
}

// Two lanes share the way to other ranks.
TEST_F(DryCommunicatorTest, WhatRanksExchangeGoesOneAfterTheOther) {
  const auto ranks = Make(2);
  WorkerLane other("other", &world_);
  ranks->AllGather(lane_, nullptr, nullptr, Elements(100), DType::kF32, tag_);
  ranks->AllGather(other, nullptr, nullptr, Elements(100), DType::kF32, tag_);
  EXPECT_THAT(lane_.Drain(), IsOk());
  EXPECT_EQ(world_.NowNs(), 405);
  EXPECT_THAT(other.Drain(), IsOk());
  EXPECT_EQ(world_.NowNs(), 810);
}

TEST_F(DryCommunicatorTest, OtherRanksSayWhatThisOneSays) {
  const auto ranks = Make(3, /*timed=*/false);
  std::vector<uint64_t> words = {1, 7, 0};
  ranks->AllReduce(lane_, words.data(), Elements(3), DType::kU64,
                   ReduceOp::kSum, tag_);
  std::vector<int64_t> least = {4, -4};
  ranks->AllReduce(lane_, least.data(), Elements(2), DType::kI64,
                   ReduceOp::kMin, tag_);
  ranks->Barrier(lane_, tag_);
  EXPECT_THAT(lane_.Drain(), IsOk());
  EXPECT_THAT(words, ElementsAre(3, 21, 0));
  EXPECT_THAT(least, ElementsAre(4, -4));
  EXPECT_EQ(world_.NowNs(), 0);
  // Two of three words go to other ranks to be added, and the sum of the third
  // goes to both ranks.
  EXPECT_EQ(ranks->stats().bytes_sent, Bytes(8) * (2 + 2) + Bytes(8) * (1 + 2));
}

TEST_F(DryCommunicatorTest, ARankWaitsForTheOtherThatComesLater) {
  meetings_.other_ns = {70, 10};
  const auto ranks = Make(2, /*timed=*/false);
  ranks->Barrier(lane_, tag_);
  EXPECT_THAT(lane_.Drain(), IsOk());
  EXPECT_EQ(world_.NowNs(), 70);
  ranks->Barrier(lane_, tag_);
  EXPECT_THAT(lane_.Drain(), IsOk());
  EXPECT_EQ(world_.NowNs(), 70);
  EXPECT_THAT(meetings_.own_ns, ElementsAre(0, 70));
}

TEST_F(DryCommunicatorTest, WhoComesFirstGoesOnAfterItsOtherCalls) {
  for (const bool last : {false, true}) {
    meetings_.comes_last = last;
    const auto ranks = Make(2, /*timed=*/false);
    WorkerLane other("other", &world_);
    std::vector<int> ran;
    ranks->Barrier(lane_, tag_);
    lane_.Run([&ran] {
      ran.push_back(0);
      return OkStatus();
    });
    other.Run([&ran] {
      ran.push_back(1);
      return OkStatus();
    });
    EXPECT_THAT(lane_.Drain(), IsOk());
    EXPECT_THAT(other.Drain(), IsOk());
    EXPECT_EQ(ran, last ? (std::vector<int>{0, 1}) : (std::vector<int>{1, 0}));
  }
}

TEST_F(DryCommunicatorTest, TheFirstReasonOfAnEndStays) {
  const auto ranks = Make(2);
  EXPECT_THAT(ranks->Health(), IsOk());
  ranks->Abort(Unavailable("one"));
  ranks->Abort(Unavailable("two"));
  EXPECT_THAT(ranks->Health(),
              StatusIs(ErrorCode::kUnavailable, testing::HasSubstr("one")));
}

}  // namespace
}  // namespace castor
