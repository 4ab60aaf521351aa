// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/internal/collective_call.h"

#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

}  // namespace
}  // namespace castor::internal
