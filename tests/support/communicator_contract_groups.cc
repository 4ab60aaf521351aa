// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Operations among the ranks of a group, and across groups.

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/rank_scope.h"
#include "gmock/gmock.h"
#include "tests/support/communicator_contract.h"
#include "tests/support/rank_values.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

CollectiveTag ScopedTag(int32_t chunk, int64_t moment, RankScope scope) {
  return {ChunkId(chunk), moment, "test", scope};
}

// Every way to cut a small world, and two of a large one.
std::vector<RankScope> ScopesOf(int world) {
  std::vector<RankScope> scopes;
  for (int group = 1; group <= world; ++group) {
    if (world % group != 0) continue;
    if (world > 8 && group != 2 && group != 8) continue;
    for (const Among among : {Among::kWorld, Among::kGroup, Among::kReplicas}) {
      scopes.push_back({among, group});
    }
  }
  return scopes;
}

// Every rank by itself.
constexpr RankScope kAlone{Among::kGroup, 1};

std::string ScopeName(const RankScope& scope) {
  return "among " + std::to_string(static_cast<int>(scope.among)) +
         ", groups of " + std::to_string(scope.group);
}

TEST_P(CommunicatorContract, GathersAmongGroupsWhatEachOfItsRanksBrings) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    const int world = self.world();
    for (const RankScope& scope : ScopesOf(world)) {
      const int among = scope.size(world);
      for (const int64_t shard :
           {int64_t{0}, int64_t{7}, int64_t{16'000} / world}) {
        std::vector<uint32_t> expected(static_cast<size_t>(among * shard));
        for (int i = 0; i < among; ++i) {
          const int other = scope.member(i, self.rank(), world);
          const auto theirs = MakeShard<uint32_t>(other, shard);
          std::copy(theirs.begin(), theirs.end(),
                    SliceOf(expected, scope.place(other, world), shard));
        }
        const auto mine = MakeShard<uint32_t>(self.rank(), shard);
        std::vector<uint32_t> chunk(expected.size());
        self.comm.AllGather(self.lane, mine.data(), chunk.data(),
                            Elements(shard), DType::kF32,
                            ScopedTag(1, 1, scope));
        std::vector<uint32_t> in_place(expected.size());
        uint32_t* slice =
            SliceOf(in_place, scope.place(self.rank(), world), shard);
        std::copy(mine.begin(), mine.end(), slice);
        self.comm.AllGather(self.lane, slice, in_place.data(), Elements(shard),
                            DType::kF32, ScopedTag(2, 2, scope));
        ASSERT_THAT(self.lane.Drain(), IsOk());
        ASSERT_TRUE(SameBits(chunk, expected)) << ScopeName(scope);
        ASSERT_TRUE(SameBits(in_place, expected)) << ScopeName(scope);
      }
    }
  });
}

// In the order of the world's ranks, though their slices lie in another.
TEST_P(CommunicatorContract, ReducesAmongGroupsInRankOrder) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    const int world = self.world();
    for (const RankScope& scope : ScopesOf(world)) {
      const int among = scope.size(world);
      const int place = scope.place(self.rank(), world);
      for (const int64_t shard :
           {int64_t{0}, int64_t{7}, int64_t{16'000} / world}) {
        std::vector<float> expected;
        for (int64_t i = 0; i < shard; ++i) {
          const int64_t element = place * shard + i;
          float sum = RandomFloat(scope.member(0, self.rank(), world), element);
          for (int m = 1; m < among; ++m) {
            sum += RandomFloat(scope.member(m, self.rank(), world), element);
          }
          expected.push_back(sum);
        }
        const std::vector<float> whole = MakeFloats(self.rank(), among * shard);
        const std::vector<float> chunk = whole;
        std::vector<float> result(expected.size());
        self.comm.ReduceScatter(self.lane, chunk.data(), result.data(),
                                Elements(shard), DType::kF32,
                                ScopedTag(1, 1, scope));
        std::vector<float> in_place = whole;
        float* slice = SliceOf(in_place, place, shard);
        self.comm.ReduceScatter(self.lane, in_place.data(), slice,
                                Elements(shard), DType::kF32,
                                ScopedTag(2, 2, scope));
        ASSERT_THAT(self.lane.Drain(), IsOk());
        ASSERT_TRUE(SameBits(result, expected)) << ScopeName(scope);
        ASSERT_TRUE(SameBits(chunk, whole)) << ScopeName(scope);
        std::vector<float> expected_chunk = whole;
        std::copy(expected.begin(), expected.end(),
                  SliceOf(expected_chunk, place, shard));
        ASSERT_TRUE(SameBits(in_place, expected_chunk)) << ScopeName(scope);
      }
    }
  });
}

TEST_P(CommunicatorContract, CountsWhatItMovesAmongGroups) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    const int world = self.world();
    Bytes sent;
    int64_t operations = 0;
    for (const RankScope& scope : ScopesOf(world)) {
      const int among = scope.size(world);
      std::vector<float> chunk(static_cast<size_t>(64 * among));
      float* slice = SliceOf(chunk, scope.place(self.rank(), world), 64);
      self.comm.AllGather(self.lane, slice, chunk.data(), Elements(64),
                          DType::kF32, ScopedTag(1, 1, scope));
      self.comm.ReduceScatter(self.lane, chunk.data(), slice, Elements(64),
                              DType::kF32, ScopedTag(1, 2, scope));
      ASSERT_THAT(self.lane.Drain(), IsOk());
      sent += Bytes(64 * 4) * (among - 1) * int64_t{2};
      operations += 2;
    }
    const CommunicatorStats stats = self.comm.stats();
    EXPECT_EQ(stats.operations, operations);
    EXPECT_EQ(stats.bytes_sent, sent);
    EXPECT_EQ(stats.bytes_received, sent);
  });
}

// Groups are one world: one that departs from what others do is found out,
// though no data goes between them, and all end with the same words.
TEST_P(CommunicatorContract, AGroupThatDepartsFromAnotherFailsBoth) {
  if (world() < 2) GTEST_SKIP() << "one rank agrees with itself";
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    const int last = self.world() - 1;
    std::vector<float> value(1);
    self.comm.AllGather(self.lane, value.data(), value.data(), Elements(1),
                        DType::kF32,
                        ScopedTag(self.rank() == last ? 32 : 31, 41, kAlone));
    EXPECT_THAT(self.lane.Drain(),
                StatusIs(ErrorCode::kFailedPrecondition,
                         Says("rank " + std::to_string(last), "chunk 31",
                              "chunk 32", "moment 41", "groups of 1")));
  });
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    std::vector<float> chunk(static_cast<size_t>(self.world()));
    const RankScope scope{self.rank() == 0 ? Among::kGroup : Among::kReplicas,
                          self.rank() == 0 ? self.world() : 1};
    self.comm.AllGather(self.lane, &chunk[static_cast<size_t>(self.rank())],
                        chunk.data(), Elements(1), DType::kF32,
                        ScopedTag(5, 6, scope));
    EXPECT_THAT(self.lane.Drain(),
                StatusIs(ErrorCode::kFailedPrecondition,
                         Says("in groups of", "across groups of 1")));
  });
}

TEST_P(CommunicatorContract, ARankOfAnotherGroupThatDoesNotComeIsNamed) {
  if (world() < 2) GTEST_SKIP() << "one rank is never waited for";
  MakeWorld(50'000'000)->ForEachRank([](RankUnderTest& self) {
    const int missing = self.world() - 1;
    if (self.rank() == missing) {
      while (self.comm.Health().ok()) std::this_thread::yield();
    }
    std::vector<float> value(1);
    self.comm.AllGather(self.lane, value.data(), value.data(), Elements(1),
                        DType::kF32, ScopedTag(5, 9, kAlone));
    EXPECT_THAT(
        self.lane.Drain(),
        StatusIs(ErrorCode::kAborted, Says("rank " + std::to_string(missing),
                                           "chunk 5", "moment 9")));
  });
}

TEST_P(CommunicatorContract, AbortEndsEveryGroup) {
  if (world() < 2) GTEST_SKIP() << "there is one group only";
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    if (self.rank() == 0) {
      self.comm.Abort(DataLoss("checksum of rank 0"));
    }
    std::vector<float> value(1);
    self.comm.AllGather(self.lane, value.data(), value.data(), Elements(1),
                        DType::kF32, ScopedTag(3, 7, kAlone));
    EXPECT_THAT(self.lane.Drain(),
                StatusIs(ErrorCode::kDataLoss, "checksum of rank 0"));
  });
}

}  // namespace
}  // namespace castor
