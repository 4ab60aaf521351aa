// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The contract on threads, and what only this backend promises: that nobody
// waits on a thread, in every order of events that can be named.

#include "collectives/in_process_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "tests/support/contracts/communicator_contract.h"
#include "tests/support/fakes/fake_clock.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/rank_values.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

// Every rank a thread, all their lanes on one pool.
class ThreadedWorld final : public WorldUnderTest {
 public:
  ThreadedWorld(int world, int pool_threads, int64_t timeout_ns)
      : pool_(pool_threads),
        ranks_(MakeInProcessWorld(
            {.world = world, .executor = &pool_, .timeout_ns = timeout_ns})) {}

  void ForEachRank(const RankBody& body) override {
    std::vector<std::thread> threads;
    for (const auto& comm : ranks_) {
      threads.emplace_back([&, comm = comm.get()] {
        WorkerLane lane("lane", &pool_);
        WorkerLane lane2("lane2", &pool_);
        RunRank(body, {*comm, lane, lane2});
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  ThreadPool pool_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

CommunicatorBackend InProcessBackend(int world, int pool_threads) {
  return {.name = "World" + std::to_string(world) + "On" +
                  std::to_string(pool_threads) + "Threads",
          .world = world,
          .make = [=](int64_t timeout_ns) -> std::unique_ptr<WorldUnderTest> {
            return std::make_unique<ThreadedWorld>(world, pool_threads,
                                                   timeout_ns);
          }};
}

INSTANTIATE_TEST_SUITE_P(
    InProcess, CommunicatorContract,
    testing::Values(InProcessBackend(1, 1), InProcessBackend(2, 1),
                    InProcessBackend(2, 2), InProcessBackend(3, 2),
                    InProcessBackend(8, 2),
                    // 64, but where a sanitizer watches.
                    InProcessBackend(std::max(16, TestRounds(64)), 2)),
    CommunicatorBackendName());

constexpr int64_t kLarge = 20'000;  // elements: too large to move in one go

// Ranks with a lane each, all on an executor that the test cranks.
class CrankedWorldTest : public testing::Test {
 protected:
  void Make(int world, int64_t timeout_ns = 0) {
    lanes_.clear();
    ranks_ = MakeInProcessWorld({.world = world,
                                 .executor = &executor_,
                                 .timeout_ns = timeout_ns,
                                 .clock = &clock_});
    for (int rank = 0; rank < world; ++rank) {
      lanes_.push_back(std::make_unique<WorkerLane>(
          "rank " + std::to_string(rank), &executor_));
    }
  }

  Communicator& Rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  Lane& LaneOf(int rank) { return *lanes_[static_cast<size_t>(rank)]; }

  // Has `rank` gather `chunk` in place.
  Event Gather(int rank, std::vector<float>& chunk) {
    const auto shard = static_cast<int64_t>(chunk.size()) / Rank(rank).world();
    Rank(rank).AllGather(LaneOf(rank), SliceOf(chunk, rank, shard),
                         chunk.data(), Elements(shard), DType::kF32, Tag(1, 1));
    return LaneOf(rank).Record();
  }

  // One chunk per rank, with its own slice filled in.
  std::vector<std::vector<float>> Chunks(int64_t shard) {
    const int world = static_cast<int>(ranks_.size());
    std::vector<std::vector<float>> chunks;
    for (int rank = 0; rank < world; ++rank) {
      chunks.emplace_back(static_cast<size_t>(shard * world), -1.0f);
      const auto mine = MakeFloats(rank, shard);
      std::copy(mine.begin(), mine.end(), SliceOf(chunks.back(), rank, shard));
    }
    return chunks;
  }

  // What every chunk holds once gathered.
  std::vector<float> Gathered(int64_t shard) {
    std::vector<float> chunk;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto more = MakeFloats(static_cast<int>(rank), shard);
      chunk.insert(chunk.end(), more.begin(), more.end());
    }
    return chunk;
  }

  ManualExecutor executor_;
  FakeClock clock_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
  std::vector<std::unique_ptr<WorkerLane>> lanes_;
};

TEST_F(CrankedWorldTest, ARankThatWaitsHoldsNoThread) {
  Make(3);
  auto chunks = Chunks(kLarge);
  const Event first = Gather(0, chunks[0]);
  const Event second = Gather(1, chunks[1]);
  executor_.RunAll();
  EXPECT_EQ(executor_.pending(), 0u);
  EXPECT_FALSE(first.done());
  // Other work of the process goes on meanwhile.
  WorkerLane other("other", &executor_);
  other.Run([] { return OkStatus(); });
  EXPECT_EQ(executor_.RunAll(), 1u);
  EXPECT_THAT(other.Drain(), IsOk());

  const Event third = Gather(2, chunks[2]);
  EXPECT_TRUE(executor_.RunOne());     // the last to arrive ...
  EXPECT_EQ(executor_.pending(), 3u);  // ... posts a part for each rank
  EXPECT_TRUE(executor_.RunOne());
  EXPECT_TRUE(executor_.RunOne());
  EXPECT_FALSE(first.done() || second.done() || third.done());
  executor_.RunAll();
  EXPECT_TRUE(first.done() && second.done() && third.done());
  for (const auto& chunk : chunks) {
    EXPECT_TRUE(SameBits(chunk, Gathered(kLarge)));
  }
}

TEST_F(CrankedWorldTest, SmallOperationsEndWithTheLastArrival) {
  Make(2);
  auto chunks = Chunks(8);
  const Event first = Gather(0, chunks[0]);
  executor_.RunAll();
  const Event second = Gather(1, chunks[1]);
  EXPECT_TRUE(executor_.RunOne());
  EXPECT_TRUE(second.done());          // within the turn of the last
  EXPECT_EQ(executor_.pending(), 1u);  // the first lane's next turn
  executor_.RunAll();
  EXPECT_TRUE(first.done());
  EXPECT_TRUE(SameBits(chunks[0], Gathered(8)));
}

TEST_F(CrankedWorldTest, AnyOrderOfArrivalAndOfPartsGivesTheSameBits) {
  std::vector<int> arrivals = {0, 1, 2};
  do {
    for (size_t pick = 0; pick < 6; ++pick) {
      Make(3);
      std::vector<std::vector<float>> chunks;
      std::vector<std::vector<float>> sums(3, std::vector<float>(kLarge));
      for (int rank = 0; rank < 3; ++rank) {
        chunks.push_back(MakeFloats(rank, kLarge * 3));
      }
      for (const int rank : arrivals) {
        const auto r = static_cast<size_t>(rank);
        Rank(rank).ReduceScatter(LaneOf(rank), chunks[r].data(), sums[r].data(),
                                 Elements(kLarge), DType::kF32, Tag(1, 1));
        EXPECT_TRUE(executor_.RunOne());
      }
      ASSERT_EQ(executor_.pending(), 3u);
      for (const size_t part : {pick % 3, pick / 3, size_t{0}}) {
        EXPECT_TRUE(executor_.RunOne(part));
      }
      executor_.RunAll();
      for (int rank = 0; rank < 3; ++rank) {
        ASSERT_THAT(LaneOf(rank).status(), IsOk());
        const auto& sum = sums[static_cast<size_t>(rank)];
        for (int64_t i = 0; i < kLarge; i += 7) {
          ASSERT_TRUE(SameBits(sum[static_cast<size_t>(i)],
                               SumInRankOrder(3, rank * kLarge + i)));
        }
      }
    }
  } while (std::next_permutation(arrivals.begin(), arrivals.end()));
}

TEST_F(CrankedWorldTest, NobodyPassesABarrierBeforeAllHaveCome) {
  Make(3);
  std::vector<Event> passed;
  for (int rank = 0; rank < 3; ++rank) {
    Rank(rank).Barrier(LaneOf(rank), Tag(1, 1));
    passed.push_back(LaneOf(rank).Record());
    executor_.RunAll();
    for (const Event& event : passed) EXPECT_EQ(event.done(), rank == 2);
  }
}

// Ranks read each other's buffers: those must not be given up while they do.
TEST_F(CrankedWorldTest, AbortLetsDataThatMovesComeToRest) {
  Make(2);
  auto chunks = Chunks(kLarge);
  const Event first = Gather(0, chunks[0]);
  const Event second = Gather(1, chunks[1]);
  executor_.RunOne();
  executor_.RunOne();
  ASSERT_EQ(executor_.pending(), 2u);  // the parts
  Rank(1).Abort(DataLoss("checksum"));
  EXPECT_EQ(executor_.pending(), 2u);
  executor_.RunOne();
  EXPECT_FALSE(first.done() || second.done());
  executor_.RunAll();
  EXPECT_THAT(first.status(), StatusIs(ErrorCode::kDataLoss, "checksum"));
  EXPECT_THAT(second.status(), StatusIs(ErrorCode::kDataLoss, "checksum"));
  EXPECT_EQ(Rank(0).stats().operations, 0);
}

TEST_F(CrankedWorldTest, AMismatchFailsOperationsAtOtherPositionsToo) {
  Make(2);
  WorkerLane second("second lane of rank 0", &executor_);
  Rank(0).Barrier(LaneOf(0), Tag(1, 1));
  Rank(0).Barrier(second, Tag(1, 2));
  executor_.RunAll();
  Rank(1).Barrier(LaneOf(1), Tag(1, 9));
  executor_.RunAll();
  const auto mismatch = StatusIs(ErrorCode::kFailedPrecondition,
                                 Says("rank 1", "moment 9", "moment 1"));
  EXPECT_THAT(LaneOf(0).status(), mismatch);
  EXPECT_THAT(LaneOf(1).status(), mismatch);
  EXPECT_THAT(second.status(), mismatch);
}

TEST_F(CrankedWorldTest, OnlyTheClockGivenCounts) {
  constexpr int64_t kTimeoutNs = 8'000'000;
  Make(2, kTimeoutNs);
  Rank(0).Barrier(LaneOf(0), Tag(1, 4));
  const Event waiting = LaneOf(0).Record();
  executor_.RunAll();
  // Real time goes by and means nothing.
  std::this_thread::sleep_for(std::chrono::nanoseconds(3 * kTimeoutNs));
  EXPECT_THAT(Rank(0).Health(), IsOk());
  clock_.AdvanceNs(kTimeoutNs);
  while (!waiting.done()) {
    executor_.RunAll();
    std::this_thread::yield();
  }
  EXPECT_THAT(waiting.status(),
              StatusIs(ErrorCode::kAborted,
                       Says("rank 1 did not come", "moment 4", "0.008 s")));
}

TEST_F(CrankedWorldTest, ARankThatIsDestroyedIsNotWaitedFor) {
  Make(3);
  for (int rank = 0; rank < 3; ++rank) {
    Rank(rank).Barrier(LaneOf(rank), Tag(1, 1));
  }
  ranks_[2] = nullptr;  // its own call is still queued, and counts
  executor_.RunAll();
  for (const auto& lane : lanes_) EXPECT_THAT(lane->status(), IsOk());

  Rank(0).Barrier(LaneOf(0), Tag(1, 2));
  executor_.RunAll();
  EXPECT_THAT(
      LaneOf(0).status(),
      StatusIs(ErrorCode::kAborted, Says("rank 2 has left", "moment 2")));
}

TEST_F(CrankedWorldTest, ARankThatIsDestroyedReleasesThoseWhoWait) {
  Make(2);
  Rank(0).Barrier(LaneOf(0), Tag(1, 2));
  executor_.RunAll();
  ranks_[1] = nullptr;
  executor_.RunAll();
  EXPECT_THAT(LaneOf(0).status(),
              StatusIs(ErrorCode::kAborted, Says("rank 1 has left")));
}

TEST_F(CrankedWorldTest, AWorldOfOneNeedsNobody) {
  Make(1);
  ThreadLane lane("trainer");  // would block for ever if anything were posted
  std::vector<float> chunk = MakeFloats(0, kLarge);
  const std::vector<float> before = chunk;
  Rank(0).AllGather(lane, chunk.data(), chunk.data(), Elements(kLarge),
                    DType::kF32, Tag(1, 1));
  Rank(0).ReduceScatter(lane, chunk.data(), chunk.data(), Elements(kLarge),
                        DType::kF32, Tag(1, 2));
  EXPECT_TRUE(SameBits(chunk, before));
  EXPECT_EQ(Rank(0).stats().bytes_copied, Bytes(0));
  std::vector<float> apart(kLarge);
  Rank(0).AllGather(lane, chunk.data(), apart.data(), Elements(kLarge),
                    DType::kF32, Tag(1, 3));
  EXPECT_TRUE(SameBits(apart, before));
  std::vector<float> shard(kLarge);
  Rank(0).ReduceScatter(lane, chunk.data(), shard.data(), Elements(kLarge),
                        DType::kF32, Tag(1, 4));
  EXPECT_TRUE(SameBits(shard, before));
  Rank(0).Barrier(lane, Tag(1, 5));
  EXPECT_THAT(lane.status(), IsOk());
  EXPECT_EQ(Rank(0).stats().operations, 5);
  EXPECT_EQ(Rank(0).stats().bytes_copied, Bytes(2 * 4 * kLarge));
  EXPECT_EQ(Rank(0).stats().bytes_sent, Bytes(0));
  EXPECT_EQ(executor_.pending(), 0u);
}

// Operations of many ranks on two lanes each, with every turn and every part
// cranked in a random order.
TEST_F(CrankedWorldTest, RandomOrdersGiveTheSameBits) {
  std::mt19937_64 random(TestSeed(11));
  const auto crank = [&] {
    const size_t pending = executor_.pending();
    return pending > 0 && executor_.RunOne(random() % pending);
  };
  for (int round = 0; round < TestRounds(30); ++round) {
    const int world = 1 + static_cast<int>(random() % 6);
    Make(world);
    const int64_t shard = round % 2 == 0 ? 64 : 6000;
    std::vector<std::unique_ptr<WorkerLane>> second;
    std::vector<std::vector<float>> gathers = Chunks(shard);
    std::vector<std::vector<float>> reduces;
    for (int rank = 0; rank < world; ++rank) {
      second.push_back(std::make_unique<WorkerLane>("second", &executor_));
      reduces.push_back(MakeFloats(rank, shard * world));
    }
    for (int step = 0; step < 4; ++step) {
      for (int rank = 0; rank < world; ++rank) {
        const auto r = static_cast<size_t>(rank);
        if (step % 2 == 0) {
          Rank(rank).AllGather(LaneOf(rank), SliceOf(gathers[r], rank, shard),
                               gathers[r].data(), Elements(shard), DType::kF32,
                               Tag(1, step));
        } else {
          Rank(rank).ReduceScatter(*second[r], reduces[r].data(),
                                   SliceOf(reduces[r], rank, shard),
                                   Elements(shard), DType::kF32, Tag(1, step));
        }
        for (uint64_t i = random() % 3; i > 0; --i) crank();
      }
    }
    while (crank()) {
    }
    for (int rank = 0; rank < world; ++rank) {
      const auto r = static_cast<size_t>(rank);
      ASSERT_THAT(LaneOf(rank).Drain(), IsOk());
      ASSERT_THAT(second[r]->Drain(), IsOk());
      ASSERT_TRUE(SameBits(gathers[r], Gathered(shard)));
      for (int64_t i = 0; i < shard; i += 3) {
        const int64_t at = rank * shard + i;
        // Summed twice, the second time with the first sum in this rank's
        // place: so the order within a lane shows.
        const auto term = [&](int other) {
          return other == rank ? SumInRankOrder(world, at)
                               : RandomFloat(other, at);
        };
        float expected = term(0);
        for (int other = 1; other < world; ++other) expected += term(other);
        ASSERT_TRUE(SameBits(reduces[r][static_cast<size_t>(at)], expected));
      }
    }
  }
}

TEST(InProcessWorldDeathTest, OptionsMustMakeSense) {
  ManualExecutor executor;
  EXPECT_DEATH(MakeInProcessWorld({.world = 0, .executor = &executor}),
               "world >= 1");
  EXPECT_DEATH(MakeInProcessWorld({.world = 1}), "executor");
}

}  // namespace
}  // namespace castor
