// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The contract on processes, each a rank, and what only this backend promises.
// mpirun starts this program (mpi_communicator_test.sh); every rank runs the
// same tests in the same order, and rank 0 reports.

#include "collectives/mpi/mpi_communicator.h"

#include <mpi.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/mpi/mpi_calls.h"
#include "collectives/mpi/mpi_session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/host/available_memory.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "tests/support/contracts/communicator_contract.h"
#include "tests/support/rank_values.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {

namespace {

// Begun by main, before the tests are listed.
MpiSession* session = nullptr;
// Has the ranks begin each test together. The tests' worlds count from 0.
Communicator* harness = nullptr;

// Blocks until every rank is here.
void MeetOthers() {
  ThreadLane lane("meet");
  harness->Barrier(lane, {ChunkId(), -1, "test"});
  ASSERT_THAT(lane.status(), IsOk());
}

std::unique_ptr<Communicator> MakeOne(const MpiOptions& options) {
  auto made = MakeMpiCommunicator(*session, options);
  EXPECT_THAT(made, IsOk());
  return made.ok() ? std::move(*made) : nullptr;
}

// This process's rank, with its lanes on a pool.
class ProcessWorld final : public WorldUnderTest {
 public:
  explicit ProcessWorld(const MpiOptions& options) : comm_(MakeOne(options)) {}

  void ForEachRank(const RankBody& body) override {
    WorkerLane lane("lane", &pool_);
    WorkerLane lane2("lane2", &pool_);
    MeetOthers();
    RunRank(body, {*comm_, lane, lane2});
  }

 private:
  ThreadPool pool_{2};
  std::unique_ptr<Communicator> comm_;
};

CommunicatorBackend MpiBackend(const std::string& name,
                               const MpiOptions& options) {
  return {.name = name,
          .world = session->world(),
          .make = [=](int64_t timeout_ns) -> std::unique_ptr<WorldUnderTest> {
            MpiOptions own = options;
            // Processes that share cores do not come as soon as threads do.
            own.timeout_ns = std::max<int64_t>(timeout_ns, 400'000'000);
            return std::make_unique<ProcessWorld>(own);
          }};
}

// As it is, or with everything in many pieces: each number of ranks sees one of
// them, which is time enough.
CommunicatorBackend Backend() {
  if (session->world() != 3) return MpiBackend("Whole", {});
  MpiOptions pieces;
  pieces.exchange_buffer = Bytes(0);
  return MpiBackend("Pieces", pieces);
}

INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorContract, testing::Values(Backend()),
                         CommunicatorBackendName());

TEST(MpiCommunicatorTest, RefusesOptionsWithoutMeaning) {
  for (const MpiOptions& bad : {MpiOptions{.timeout_ns = -1},
                                MpiOptions{.exchange_buffer = Bytes(-1)}}) {
    EXPECT_THAT(MakeMpiCommunicator(*session, bad).status(),
                StatusIs(ErrorCode::kInvalidArgument));
  }
}

TEST(MpiCommunicatorTest, ARankThatLeavesIsNotWaitedFor) {
  const int last = session->world() - 1;
  if (last == 0) GTEST_SKIP() << "nobody waits for one rank";
  std::unique_ptr<Communicator> comm = MakeOne({});
  MeetOthers();
  ThreadLane lane("lane");
  comm->Barrier(lane, Tag(1, 1, "all"));
  EXPECT_THAT(lane.status(), IsOk());
  if (session->rank() == last) {
    comm = nullptr;
    return;
  }
  comm->Barrier(lane, Tag(1, 2, "others"));
  EXPECT_THAT(lane.status(),
              StatusIs(ErrorCode::kAborted,
                       Says("rank " + std::to_string(last) + " has left",
                            "operation 1", "chunk 1", "moment 2")));
}

// Ranks come to the last operation, and one ends the world while the data is on
// its way: all fail alike, soon, and nothing is written to memory that has been
// given up.
TEST(MpiCommunicatorTest, AbortLetsDataThatMovesComeToRest) {
  std::mt19937_64 random(TestSeed(13));  // alike on every rank
  constexpr int kRounds = 12;
  constexpr float kOwn = -1;
  int slow = 0;
  ThreadPool pool(2);
  for (int round = 0; round < kRounds; ++round) {
    const auto bad =
        static_cast<int>(random() % static_cast<uint64_t>(session->world()));
    const std::chrono::microseconds delay(random() % 3000);
    const std::unique_ptr<Communicator> comm =
        MakeOne({.exchange_buffer = KiB(64)});
    MeetOthers();
    const int64_t shard = 200'000;
    const auto whole = static_cast<size_t>(shard * comm->world());
    std::vector<float> gathered(whole);
    std::vector<float> reduced(whole);
    std::fill_n(SliceOf(gathered, comm->rank(), shard), shard,
                static_cast<float>(comm->rank()));
    const auto begin = std::chrono::steady_clock::now();
    {
      WorkerLane lane("lane", &pool);
      WorkerLane lane2("lane2", &pool);
      for (int i = 0; i < 3; ++i) {
        comm->AllGather(lane, SliceOf(gathered, comm->rank(), shard),
                        gathered.data(), Elements(shard), DType::kF32,
                        Tag(1, i));
        comm->ReduceScatter(lane2, reduced.data(),
                            SliceOf(reduced, comm->rank(), shard),
                            Elements(shard), DType::kF32, Tag(2, i));
        comm->AllReduce(lane2, reduced.data(), Elements(shard), DType::kF32,
                        ReduceOp::kSum, Tag(3, i));
      }
      if (comm->rank() == bad) {
        std::this_thread::sleep_for(delay);
        comm->Abort(DataLoss("checksum"));
      }
      const Status first = lane.Drain();
      const Status second = lane2.Drain();
      // Whoever had it from a rank that gave up had it whole.
      int64_t wrong = 0;
      for (int64_t i = 0; first.ok() && i < std::ssize(gathered); ++i) {
        wrong +=
            gathered[static_cast<size_t>(i)] != static_cast<float>(i / shard);
      }
      EXPECT_EQ(wrong, 0);
      // They are this rank's own again.
      std::ranges::fill(gathered, kOwn);
      std::ranges::fill(reduced, kOwn);
      // Either may have been through before.
      for (const Status& status : {first, second}) {
        if (!status.ok()) {
          EXPECT_THAT(status, StatusIs(ErrorCode::kDataLoss, "checksum"));
        }
      }
      comm->Barrier(lane, Tag(4, 0, "later"));
      EXPECT_THAT(lane.Drain(), StatusIs(ErrorCode::kDataLoss));
    }
    const auto took = std::chrono::steady_clock::now() - begin;
    // By now whatever others still sent has come.
    MeetOthers();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (const auto* buffer : {&gathered, &reduced}) {
      EXPECT_TRUE(std::ranges::all_of(
          *buffer, [](float value) { return value == kOwn; }))
          << "written to after it was given up, in round " << round;
    }
    slow += took >= std::chrono::nanoseconds(internal::kGraceNs);
  }
  // Ranks that answer are not waited for until patience is over.
  EXPECT_LE(slow, kRounds / 2);
}

// A rank that says nothing may have sent what is still to come.
TEST(MpiCommunicatorTest, BuffersAreKeptUntilEveryRankHasAnsweredTheEnd) {
  const int last = session->world() - 1;
  if (last == 0) GTEST_SKIP() << "one rank answers itself";
  const std::unique_ptr<Communicator> comm = MakeOne({});
  MeetOthers();
  // One thread, so that a call of the first lane is made before the second's.
  ThreadPool pool(1);
  WorkerLane lane("lane", &pool);
  WorkerLane lane2("lane2", &pool);
  auto process = static_cast<int64_t>(getpid());
  comm->Broadcast(lane, &process, Bytes(8), last, Tag(1, 0));
  ASSERT_THAT(lane.Drain(), IsOk());
  const EventSource gate;
  if (session->rank() == last) lane.Wait(gate.event());
  std::vector<float> chunk(static_cast<size_t>(session->world()));
  comm->AllGather(lane, SliceOf(chunk, session->rank(), 1), chunk.data(),
                  Elements(1), DType::kF32, Tag(1, 1));
  const Event done = lane.Record();
  comm->Barrier(lane2, Tag(1, 2));
  EXPECT_THAT(lane2.Drain(), IsOk());
  if (session->rank() == 0) {
    constexpr std::chrono::nanoseconds kWait(internal::kGraceNs / 20);
    EXPECT_EQ(kill(static_cast<pid_t>(process), SIGSTOP), 0);
    std::this_thread::sleep_for(kWait / 10);
    comm->Abort(DataLoss("checksum"));
    std::this_thread::sleep_for(kWait);
    EXPECT_FALSE(done.done()) << "the last rank has not answered";
    EXPECT_EQ(kill(static_cast<pid_t>(process), SIGCONT), 0);
  }
  while (comm->Health().ok()) std::this_thread::yield();
  gate.Complete();
  EXPECT_THAT(lane.Drain(), StatusIs(ErrorCode::kDataLoss, "checksum"));
}

// Of a word, by where it lies in which rank's part.
uint64_t LargeWord(int rank, int64_t index) {
  return (static_cast<uint64_t>(index) * 2 + 1) * 0x9e3779b97f4a7c15u +
         static_cast<uint64_t>(rank);
}

// Of what is looked at of so much: a prime, so that every place of a page is.
constexpr int64_t kLook = 61;

// The first word of `chunk` that is not as rank `of(i)` filled it; -1: none.
template <typename Of>
int64_t FirstWrongWord(const std::vector<uint64_t>& chunk, int64_t part,
                       const Of& of) {
  for (int64_t i = 0; i < std::ssize(chunk); i += kLook) {
    const int rank = of(static_cast<int>(i / part));
    if (chunk[static_cast<size_t>(i)] != LargeWord(rank, i)) return i;
  }
  return -1;
}

// MPI counts in 31 bits, and so does much below it. Takes 9 GiB on two ranks:
// :mpi_large_transfer_test, asked for by name.
TEST(MpiCommunicatorTest, DISABLED_MovesMoreThanTwoGiBAtOnce) {
  const Bytes part = GiB(2) + MiB(256);
  const int64_t words = part.count() / 8;
  const int world = session->world();
  const auto available = internal::ReadAvailableMemory();
  const Bytes wanted = part * int64_t{world} * int64_t{world} + GiB(1);
  // Rank 0's answer is everybody's.
  int64_t enough = available.has_value() && available->bytes >= wanted ? 1 : 0;
  ThreadLane lane("lane");
  harness->Broadcast(lane, &enough, Bytes(8), 0, Tag(0, 0));
  ASSERT_THAT(lane.status(), IsOk());
  if (enough == 0) {
    GTEST_SKIP() << "it takes " << wanted.count() << " bytes of memory";
  }
  const std::unique_ptr<Communicator> comm = MakeOne({});
  const int rank = comm->rank();
  std::vector<uint64_t> chunk(static_cast<size_t>(words * world));
  uint64_t* const own = chunk.data() + words * rank;
  for (int64_t i = 0; i < words; ++i) {
    own[i] = LargeWord(rank, words * rank + i);
  }
  comm->AllGather(lane, own, chunk.data(), Elements(part.count()), DType::kU8,
                  Tag(1, 0));
  ASSERT_THAT(lane.status(), IsOk());
  EXPECT_EQ(FirstWrongWord(chunk, words, [](int of) { return of; }), -1);

  // From the last rank, all of it.
  const int root = world - 1;
  if (rank == root) {
    uint64_t* const all = chunk.data();
    for (int64_t i = 0; i < words * world; ++i) all[i] = LargeWord(root, i);
  }
  comm->Broadcast(lane, chunk.data(), part * int64_t{world}, root, Tag(1, 1));
  ASSERT_THAT(lane.status(), IsOk());
  EXPECT_EQ(FirstWrongWord(chunk, words, [=](int) { return root; }), -1);

  // Sums of small whole numbers are exact.
  auto* const values = reinterpret_cast<float*>(chunk.data());
  const int64_t shard = words * 2;
  for (int64_t i = 0; i < shard * world; ++i) {
    values[i] = static_cast<float>(i % 8191 + rank);
  }
  comm->ReduceScatter(lane, values, values + shard * rank, Elements(shard),
                      DType::kF32, Tag(1, 2));
  ASSERT_THAT(lane.status(), IsOk());
  const int others = world * (world - 1) / 2;
  int64_t wrong = -1;
  for (int64_t i = 0; i < shard && wrong < 0; i += kLook) {
    const int64_t index = shard * rank + i;
    const auto sum = static_cast<float>(index % 8191 * world + others);
    if (values[index] != sum) wrong = index;
  }
  EXPECT_EQ(wrong, -1);
}

// Exits with 0 if the session is refused as it should be.
int TryWithFewThreads() {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  const Status status = MpiSession::Start().status();
  std::cerr << status << "\n";
  const bool refused =
      status.code() == ErrorCode::kUnavailable &&
      status.message().find("MPI_THREAD_MULTIPLE") != std::string_view::npos;
  MPI_Finalize();
  return refused ? 0 : 1;
}

int RunTests(int argc, char** argv) {
  auto started = MpiSession::Start();
  if (!started.ok()) {
    std::cerr << started.status() << "\n";
    return 1;
  }
  session = started->get();
  std::unique_ptr<Communicator> meeting = MakeOne({});
  harness = meeting.get();
  testing::InitGoogleTest(&argc, argv);
  if (session->rank() > 0) testing::GTEST_FLAG(output) = "";
  const int failed = RUN_ALL_TESTS();
  meeting = nullptr;
  const Status closed = session->Close();
  if (!closed.ok()) std::cerr << closed << "\n";
  return failed != 0 || !closed.ok() ? 1 : 0;
}

}  // namespace
}  // namespace castor

int main(int argc, char** argv) {
  const bool few = argc > 1 && std::string_view(argv[1]) == "--few-threads";
  return few ? castor::TryWithFewThreads() : castor::RunTests(argc, argv);
}
