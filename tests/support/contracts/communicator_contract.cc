// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What operations do. communicator_contract_lanes.cc has them on lanes, in
// sequence and side by side; communicator_contract_failures.cc, how they fail.

#include "tests/support/contracts/communicator_contract.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/rank_scope.h"
#include "gmock/gmock.h"
#include "tests/support/rank_values.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

// Elements per rank of what is too large to be moved in one go: among all ranks
// more than threads move at once, and than is exchanged at once where a test
// says how much that is.
template <typename T>
int64_t LargeShard(int world) {
  return 64'000 / static_cast<int64_t>(sizeof(T)) / world;
}

CollectiveTag ScopedTag(int64_t moment, RankScope scope) {
  return {ChunkId(1), moment, "test", scope};
}

std::string ScopeName(const RankScope& scope) {
  return "among " + std::to_string(static_cast<int>(scope.among)) +
         ", groups of " + std::to_string(scope.group);
}

// Those that `self` calls with, in rank order.
std::vector<int> RanksOf(const RankScope& scope, const RankUnderTest& self) {
  std::vector<int> ranks;
  for (int i = 0; i < scope.size(self.world()); ++i) {
    ranks.push_back(scope.member(i, self.rank(), self.world()));
  }
  return ranks;
}

template <typename T>
void ExpectAllGather(RankUnderTest& self, DType dtype, const RankScope& scope,
                     const std::vector<int64_t>& shards) {
  SCOPED_TRACE(ScopeName(scope));
  const int world = self.world();
  const std::vector<int> ranks = RanksOf(scope, self);
  for (const int64_t shard : shards) {
    std::vector<T> expected(ranks.size() * static_cast<size_t>(shard));
    for (const int rank : ranks) {
      const auto theirs = MakeShard<T>(rank, shard);
      std::copy(theirs.begin(), theirs.end(),
                SliceOf(expected, scope.place(rank, world), shard));
    }
    const std::vector<T> mine = MakeShard<T>(self.rank(), shard);
    std::vector<T> chunk(expected.size());
    self.comm.AllGather(self.lane, mine.data(), chunk.data(), Elements(shard),
                        dtype, ScopedTag(1, scope));
    std::vector<T> in_place(expected.size());
    T* slice = SliceOf(in_place, scope.place(self.rank(), world), shard);
    std::copy(mine.begin(), mine.end(), slice);
    self.comm.AllGather(self.lane, slice, in_place.data(), Elements(shard),
                        dtype, ScopedTag(2, scope));
    ASSERT_THAT(self.lane.Drain(), IsOk());
    ASSERT_TRUE(SameBits(chunk, expected)) << "shard " << shard;
    ASSERT_TRUE(SameBits(in_place, expected)) << "in place, shard " << shard;
  }
}

// In the order of the world's ranks, wherever their slices lie.
template <typename Format>
void ExpectReduceScatter(RankUnderTest& self, DType dtype,
                         const RankScope& scope,
                         const std::vector<int64_t>& shards) {
  using T = typename Format::Bits;
  SCOPED_TRACE(ScopeName(scope));
  const std::vector<int> ranks = RanksOf(scope, self);
  const int place = scope.place(self.rank(), self.world());
  for (const int64_t shard : shards) {
    std::vector<T> expected;
    for (int64_t i = 0; i < shard; ++i) {
      expected.push_back(SumOver<Format>(ranks, place * shard + i));
    }
    const std::vector<T> whole =
        MakeNumbers<Format>(self.rank(), shard * std::ssize(ranks));
    const std::vector<T> chunk = whole;
    std::vector<T> result(expected.size());
    self.comm.ReduceScatter(self.lane, chunk.data(), result.data(),
                            Elements(shard), dtype, ScopedTag(1, scope));
    std::vector<T> in_place = whole;
    T* slice = SliceOf(in_place, place, shard);
    self.comm.ReduceScatter(self.lane, in_place.data(), slice, Elements(shard),
                            dtype, ScopedTag(2, scope));
    ASSERT_THAT(self.lane.Drain(), IsOk());
    ASSERT_TRUE(SameBits(result, expected)) << "shard " << shard;
    ASSERT_TRUE(SameBits(chunk, whole)) << "what is read was written";
    // In place it writes its own slice and nothing else.
    std::vector<T> expected_chunk = whole;
    std::copy(expected.begin(), expected.end(),
              SliceOf(expected_chunk, place, shard));
    ASSERT_TRUE(SameBits(in_place, expected_chunk))
        << "in place, shard " << shard;
  }
}

template <typename T, typename Make, typename Combine>
void ExpectAllReduce(RankUnderTest& self, DType dtype, ReduceOp op, Make make,
                     Combine combine) {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{100},
                              LargeShard<T>(self.world())}) {
    std::vector<T> data;
    std::vector<T> expected;
    for (int64_t i = 0; i < count; ++i) {
      data.push_back(make(self.rank(), i));
      T value = make(0, i);
      for (int rank = 1; rank < self.world(); ++rank) {
        value = combine(value, make(rank, i));
      }
      expected.push_back(value);
    }
    self.comm.AllReduce(self.lane, data.data(), Elements(count), dtype, op,
                        Tag(-1, count, "reduce"));
    ASSERT_THAT(self.lane.Drain(), IsOk());
    ASSERT_TRUE(SameBits(data, expected)) << "elements " << count;
  }
}

TEST_P(CommunicatorContract, KnowsItsRankAndWorld) {
  Notes ranks;
  MakeWorld()->ForEachRank([&](RankUnderTest& self) {
    EXPECT_EQ(self.comm.world(), world());
    EXPECT_GE(self.rank(), 0);
    EXPECT_LT(self.rank(), world());
    EXPECT_GE(self.comm.buffer_bytes(), Bytes(0));
    EXPECT_THAT(self.comm.Health(), IsOk());
    ranks.Add(std::to_string(self.rank()));
  });
  const auto all = ranks.all();
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
}

// None, some that fill nothing evenly, and large ones.
template <typename T>
std::vector<int64_t> ShardSizes(int world) {
  return {0, 1, 7, 128, LargeShard<T>(world)};
}

TEST_P(CommunicatorContract, AllGathersElementsOfEverySize) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    const int world = self.world();
    ExpectAllGather<uint8_t>(self, DType::kU8, {}, ShardSizes<uint8_t>(world));
    ExpectAllGather<uint16_t>(self, DType::kBF16, {},
                              ShardSizes<uint16_t>(world));
    ExpectAllGather<uint32_t>(self, DType::kF32, {},
                              ShardSizes<uint32_t>(world));
  });
}

TEST_P(CommunicatorContract, TheOrderOfTheseSumsShows) {
  if (world() < 3) GTEST_SKIP() << "two terms have one sum";
  int differ = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    float backward = RandomFloat(world() - 1, i);
    for (int rank = world() - 2; rank >= 0; --rank) {
      backward += RandomFloat(rank, i);
    }
    differ += !SameBits(backward, SumInRankOrder(world(), i));
  }
  EXPECT_GT(differ, 100);
}

// In fp32, and rounded once: not after each addition.
TEST_P(CommunicatorContract, ReduceScattersInRankOrderRoundedOnce) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    const int world = self.world();
    ExpectReduceScatter<Fp32>(self, DType::kF32, {}, ShardSizes<float>(world));
    ExpectReduceScatter<Bf16>(self, DType::kBF16, {},
                              ShardSizes<uint16_t>(world));
    ExpectReduceScatter<Fp16>(self, DType::kF16, {},
                              ShardSizes<uint16_t>(world));
  });
}

TEST_P(CommunicatorContract, AllReducesUnsignedSumsThatWrap) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    ExpectAllReduce<uint64_t>(
        self, DType::kU64, ReduceOp::kSum,
        [](int rank, int64_t i) { return RandomBits(rank, i); },
        [](uint64_t a, uint64_t b) { return a + b; });
  });
}

TEST_P(CommunicatorContract, AllReducesSignedExtremes) {
  const auto make = [](int rank, int64_t i) {
    return std::bit_cast<int64_t>(RandomBits(rank, i));
  };
  MakeWorld()->ForEachRank([&](RankUnderTest& self) {
    ExpectAllReduce<int64_t>(
        self, DType::kI64, ReduceOp::kMin, make,
        [](int64_t a, int64_t b) { return std::min(a, b); });
    ExpectAllReduce<int64_t>(
        self, DType::kI64, ReduceOp::kMax, make,
        [](int64_t a, int64_t b) { return std::max(a, b); });
    ExpectAllReduce<int64_t>(
        self, DType::kI64, ReduceOp::kSum, make, [](int64_t a, int64_t b) {
          return std::bit_cast<int64_t>(std::bit_cast<uint64_t>(a) +
                                        std::bit_cast<uint64_t>(b));
        });
    ExpectAllReduce<uint64_t>(
        self, DType::kU64, ReduceOp::kMax,
        [](int rank, int64_t i) { return RandomBits(rank, i); },
        [](uint64_t a, uint64_t b) { return std::max(a, b); });
  });
}

TEST_P(CommunicatorContract, AllReducesFloatsInRankOrder) {
  const auto wide = [](int rank, int64_t i) {
    return static_cast<double>(RandomFloat(rank, i)) / 3;
  };
  const auto narrow = [](int rank, int64_t i) { return RandomFloat(rank, i); };
  MakeWorld()->ForEachRank([&](RankUnderTest& self) {
    ExpectAllReduce<double>(self, DType::kF64, ReduceOp::kSum, wide,
                            [](double a, double b) { return a + b; });
    ExpectAllReduce<float>(self, DType::kF32, ReduceOp::kSum, narrow,
                           [](float a, float b) { return a + b; });
    ExpectAllReduce<double>(self, DType::kF64, ReduceOp::kMin, wide,
                            [](double a, double b) { return std::min(a, b); });
    ExpectAllReduce<float>(self, DType::kF32, ReduceOp::kMax, narrow,
                           [](float a, float b) { return std::max(a, b); });
  });
}

TEST_P(CommunicatorContract, WhatIsNotANumberReachesEveryRank) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      for (int bad = 0; bad < self.world(); ++bad) {
        float value =
            self.rank() == bad ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
        self.comm.AllReduce(self.lane, &value, Elements(1), DType::kF32, op,
                            Tag(-1, bad, "nan"));
        ASSERT_THAT(self.lane.Drain(), IsOk());
        EXPECT_TRUE(std::isnan(value)) << "of rank " << bad;
      }
    }
  });
}

TEST_P(CommunicatorContract, BroadcastsFromEveryRoot) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    for (int root = 0; root < self.world(); ++root) {
      for (const int64_t size : {0, 1, 1000, 70'000 / self.world()}) {
        const auto salt = static_cast<uint64_t>(root);
        std::vector<uint8_t> data = MakeShard<uint8_t>(self.rank(), size, salt);
        self.comm.Broadcast(self.lane, data.data(), Bytes(size), root,
                            Tag(-1, root, "broadcast"));
        ASSERT_THAT(self.lane.Drain(), IsOk());
        ASSERT_TRUE(SameBits(data, MakeShard<uint8_t>(root, size, salt)));
      }
    }
  });
}

TEST_P(CommunicatorContract, BarriersComplete) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    for (int i = 0; i < 20; ++i) {
      self.comm.Barrier(self.lane, Tag(-1, i, "barrier"));
    }
    EXPECT_THAT(self.lane.Drain(), IsOk());
  });
}

TEST_P(CommunicatorContract, CountsWhatItMoves) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    std::vector<float> chunk(static_cast<size_t>(64 * self.world()));
    float* slice = SliceOf(chunk, self.rank(), 64);
    const Bytes others = Bytes(64 * 4) * (self.world() - 1);

    self.comm.AllGather(self.lane, slice, chunk.data(), Elements(64),
                        DType::kF32, Tag(1, 1));
    self.comm.ReduceScatter(self.lane, chunk.data(), slice, Elements(64),
                            DType::kF32, Tag(1, 2));
    ASSERT_THAT(self.lane.Drain(), IsOk());
    CommunicatorStats stats = self.comm.stats();
    EXPECT_EQ(stats.operations, 2);
    EXPECT_EQ(stats.bytes_sent, others * 2);
    EXPECT_EQ(stats.bytes_received, others * 2);
    EXPECT_EQ(stats.bytes_copied, Bytes(0));

    std::vector<float> apart(64);
    self.comm.AllGather(self.lane, apart.data(), chunk.data(), Elements(64),
                        DType::kF32, Tag(1, 3));
    self.comm.Broadcast(self.lane, chunk.data(), Bytes(100), 0, Tag(-1, 4));
    ASSERT_THAT(self.lane.Drain(), IsOk());
    stats = self.comm.stats();
    EXPECT_EQ(stats.operations, 4);
    EXPECT_EQ(stats.bytes_copied, Bytes(64 * 4));
    const Bytes sent =
        self.rank() == 0 ? Bytes(100) * (self.world() - 1) : Bytes(0);
    EXPECT_EQ(stats.bytes_sent, others * 3 + sent);
    EXPECT_EQ(stats.bytes_received,
              others * 3 + (self.rank() == 0 ? Bytes(0) : Bytes(100)));
  });
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

TEST_P(CommunicatorContract, GathersAndReducesAmongGroups) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    for (const RankScope& scope : ScopesOf(self.world())) {
      const std::vector<int64_t> shards = {0, 7, 16'000 / self.world()};
      ExpectAllGather<uint32_t>(self, DType::kF32, scope, shards);
      ExpectReduceScatter<Fp32>(self, DType::kF32, scope, shards);
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
                          DType::kF32, ScopedTag(1, scope));
      self.comm.ReduceScatter(self.lane, chunk.data(), slice, Elements(64),
                              DType::kF32, ScopedTag(2, scope));
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

}  // namespace
}  // namespace castor
