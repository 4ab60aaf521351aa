// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// That the parts of a call may run in any order, in place; the communicator's
// contract suite covers what they compute.

#include "collectives/internal/data_movement.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/internal/collective_call.h"
#include "collectives/rank_scope.h"
#include "gtest/gtest.h"
#include "tests/support/rank_values.h"

namespace castor::internal {
namespace {

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

TEST(DataMovementTest, GathersInPlaceInAnyOrder) {
  ExpectAnyOrder(Call(CollectiveKind::kAllGather, kShard), FromSlice);
}

TEST(DataMovementTest, ReduceScattersInPlaceInAnyOrder) {
  ExpectAnyOrder(Call(CollectiveKind::kReduceScatter, kShard), ToSlice);
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

}  // namespace
}  // namespace castor::internal
