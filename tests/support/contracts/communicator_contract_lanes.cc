// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Operations on lanes: what follows them, and what runs beside them.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "tests/support/contracts/communicator_contract.h"
#include "tests/support/rank_values.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

// Nothing is read or written once the lane has gone on: the next round changes
// every buffer at once.
TEST_P(CommunicatorContract, BuffersMayBeReusedWhenTheLaneGoesOn) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    const int64_t shard = std::max(16, 15'000 / self.world());
    std::vector<float> mine(static_cast<size_t>(shard));
    std::vector<float> chunk(mine.size() * static_cast<size_t>(self.world()));
    std::vector<float> sums(mine.size());
    for (uint64_t round = 0; round < 5; ++round) {
      self.lane.Run([&, round] {
        const auto fresh = MakeFloats(self.rank(), shard, round);
        std::copy(fresh.begin(), fresh.end(), mine.begin());
        return OkStatus();
      });
      self.comm.AllGather(self.lane, mine.data(), chunk.data(), Elements(shard),
                          DType::kF32, Tag(1, static_cast<int64_t>(round)));
      self.lane.Run([&, round] {
        std::fill(mine.begin(), mine.end(), -1.0f);
        for (int rank = 0; rank < self.world(); ++rank) {
          const auto expected = MakeFloats(rank, shard, round);
          const float* slice = SliceOf(chunk, rank, shard);
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(), slice));
        }
        const auto fresh = MakeFloats(self.rank(), shard * self.world(), round);
        std::copy(fresh.begin(), fresh.end(), chunk.begin());
        return OkStatus();
      });
      self.comm.ReduceScatter(self.lane, chunk.data(), sums.data(),
                              Elements(shard), DType::kF32,
                              Tag(2, static_cast<int64_t>(round)));
      self.lane.Run([&, round] {
        std::fill(chunk.begin(), chunk.end(), -1.0f);
        std::vector<float> expected;
        for (int64_t i = 0; i < shard; ++i) {
          expected.push_back(
              SumInRankOrder(self.world(), self.rank() * shard + i, round));
        }
        EXPECT_TRUE(SameBits(sums, expected));
        return OkStatus();
      });
    }
    EXPECT_THAT(self.lane.Drain(), IsOk());
  });
}

// Operations are matched in the order of the calls, not in that in which lanes
// reach them: odd ranks reach the second before the first.
TEST_P(CommunicatorContract, OperationsOnTwoLanesKeepApart) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    uint64_t first = RandomBits(self.rank(), 1);
    uint64_t second = RandomBits(self.rank(), 2);
    const EventSource gate;
    if (self.rank() % 2 == 1) self.lane.Wait(gate.event());
    self.comm.AllReduce(self.lane, &first, Elements(1), DType::kU64,
                        ReduceOp::kSum, Tag(1, 1, "first"));
    self.comm.AllReduce(self.lane2, &second, Elements(1), DType::kU64,
                        ReduceOp::kMax, Tag(2, 2, "second"));
    if (self.rank() % 2 == 1) {
      EXPECT_THAT(self.lane2.Drain(), IsOk());
      gate.Complete();
    }
    EXPECT_THAT(self.lane2.Drain(), IsOk());
    EXPECT_THAT(self.lane.Drain(), IsOk());
    uint64_t sum = 0;
    uint64_t largest = 0;
    for (int rank = 0; rank < self.world(); ++rank) {
      sum += RandomBits(rank, 1);
      largest = std::max(largest, RandomBits(rank, 2));
    }
    EXPECT_EQ(first, sum);
    EXPECT_EQ(second, largest);
  });
}

// A gather that was called after a reduction, and is on another lane, is over
// before that has begun, on every rank.
TEST_P(CommunicatorContract, AGatherOvertakesAReductionWhoseLaneWaits) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    const int64_t shard = 12'000 / self.world();
    std::vector<float> summed =
        MakeFloats(self.rank(), shard * self.world(), 1);
    float* const sum = SliceOf(summed, self.rank(), shard);
    std::vector<uint32_t> gathered(static_cast<size_t>(shard * self.world()));
    const auto mine = MakeShard<uint32_t>(self.rank(), shard, 2);
    uint32_t* const own = SliceOf(gathered, self.rank(), shard);
    std::copy(mine.begin(), mine.end(), own);
    const EventSource gradients;
    self.lane.Wait(gradients.event());
    self.comm.ReduceScatter(self.lane, summed.data(), sum, Elements(shard),
                            DType::kF32, Tag(1, 1, "first"));
    const Event reduced = self.lane.Record();
    self.comm.AllGather(self.lane2, own, gathered.data(), Elements(shard),
                        DType::kF32, Tag(2, 2, "second"));
    EXPECT_THAT(self.lane2.Drain(), IsOk());
    EXPECT_TRUE(
        SameBits(gathered, MakeGathered<uint32_t>(self.world(), shard, 2)));
    EXPECT_FALSE(reduced.done());
    gradients.Complete();
    EXPECT_THAT(self.lane.Drain(), IsOk());
    std::vector<float> expected;
    for (int64_t i = 0; i < shard; ++i) {
      expected.push_back(
          SumInRankOrder(self.world(), self.rank() * shard + i, 1));
    }
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), sum));
  });
}

// The same random sequence of operations on every rank, on both lanes.
TEST_P(CommunicatorContract, RandomProgramsGiveWhatTheyShould) {
  const uint64_t seed = TestSeed(7);
  MakeWorld()->ForEachRank([seed](RankUnderTest& self) {
    std::mt19937_64 random(seed);  // alike on every rank
    const int world = self.world();
    // What is queued must stay until the lanes are done with it.
    std::vector<std::function<void()>> checks;
    for (uint64_t step = 1; step <= 60; ++step) {
      Lane& lane = random() % 2 == 0 ? self.lane : self.lane2;
      const int most =
          random() % 4 == 0 ? 20'000 / world : std::max(10, 400 / world);
      const auto shard =
          static_cast<int64_t>(random() % static_cast<uint64_t>(most));
      const auto moment = static_cast<int64_t>(step);
      switch (random() % 5) {
        case 0: {
          auto chunk = std::make_shared<std::vector<uint32_t>>(
              static_cast<size_t>(shard * world));
          const auto mine = MakeShard<uint32_t>(self.rank(), shard, step);
          uint32_t* slice = SliceOf(*chunk, self.rank(), shard);
          std::copy(mine.begin(), mine.end(), slice);
          self.comm.AllGather(lane, slice, chunk->data(), Elements(shard),
                              DType::kF32, Tag(1, moment));
          checks.push_back([=] {
            EXPECT_TRUE(
                SameBits(*chunk, MakeGathered<uint32_t>(world, shard, step)));
          });
          break;
        }
        case 1: {
          auto chunk = std::make_shared<std::vector<uint16_t>>(
              MakeNumbers<Bf16>(self.rank(), shard * world, step));
          uint16_t* slice = SliceOf(*chunk, self.rank(), shard);
          self.comm.ReduceScatter(lane, chunk->data(), slice, Elements(shard),
                                  DType::kBF16, Tag(2, moment));
          checks.push_back([=, rank = self.rank()] {
            int wrong = 0;
            for (int64_t i = 0; i < shard; ++i) {
              const int64_t at = rank * shard + i;
              wrong += (*chunk)[static_cast<size_t>(at)] !=
                       SumInRankOrder<Bf16>(world, at, step);
            }
            EXPECT_EQ(wrong, 0);
          });
          break;
        }
        case 2: {
          auto data = std::make_shared<std::vector<float>>(
              MakeFloats(self.rank(), shard, step));
          self.comm.AllReduce(lane, data->data(), Elements(shard), DType::kF32,
                              ReduceOp::kSum, Tag(-1, moment));
          checks.push_back([=] {
            int wrong = 0;
            for (int64_t i = 0; i < shard; ++i) {
              wrong += !SameBits((*data)[static_cast<size_t>(i)],
                                 SumInRankOrder(world, i, step));
            }
            EXPECT_EQ(wrong, 0);
          });
          break;
        }
        case 3: {
          const int root =
              static_cast<int>(random() % static_cast<uint64_t>(world));
          auto data = std::make_shared<std::vector<uint8_t>>(
              MakeShard<uint8_t>(self.rank(), shard, step));
          self.comm.Broadcast(lane, data->data(), Bytes(shard), root,
                              Tag(-1, moment));
          checks.push_back([=] {
            EXPECT_TRUE(SameBits(*data, MakeShard<uint8_t>(root, shard, step)));
          });
          break;
        }
        default:
          self.comm.Barrier(lane, Tag(-1, moment));
      }
    }
    EXPECT_THAT(self.lane.Drain(), IsOk());
    EXPECT_THAT(self.lane2.Drain(), IsOk());
    for (const auto& check : checks) check();
    EXPECT_EQ(self.comm.stats().operations, 60);
  });
}

}  // namespace
}  // namespace castor
