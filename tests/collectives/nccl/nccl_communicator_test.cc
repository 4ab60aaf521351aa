// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The communicator contract on NCCL's backend over a fake NCCL, and the ways in
// which NCCL, a device or a rank fails it. nccl_hardware_test.cc asks the
// contract of NCCL itself.

#include "collectives/nccl/nccl_communicator.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "tests/collectives/nccl/nccl_engine_check.h"
#include "tests/support/contracts/communicator_contract.h"
#include "tests/support/fakes/fake_nccl_world.h"
#include "tests/support/rank_values.h"
#include "tests/support/status_matchers.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"

namespace castor {
namespace {

using testing::Each;

constexpr NcclOptions::Reduce kExact = NcclOptions::Reduce::kExact;
constexpr NcclOptions::Reduce kNative = NcclOptions::Reduce::kNative;

class NcclWorld final : public FakeNcclWorld, public WorldUnderTest {
 public:
  using FakeNcclWorld::FakeNcclWorld;

  // One lane of the device and one of the pool, as an engine has.
  void ForEachRank(const RankBody& body) override {
    OnEveryRank(size(), [&](int rank) {
      const auto lane = device(rank).MakeLane("lane");
      WorkerLane lane2("lane2", executor());
      RunRank(body, {comm(rank), *lane, lane2});
    });
  }
};

CommunicatorBackend NcclBackend(int world, NcclOptions::Reduce reduce,
                                int questions) {
  return {.name = "World" + std::to_string(world) +
                  (reduce == kExact ? "Exact" : "Native"),
          .world = world,
          .make = [=](int64_t timeout_ns) -> std::unique_ptr<WorldUnderTest> {
            auto made = std::make_unique<NcclWorld>(
                world, FakeNcclOptions{.questions = questions});
            NcclOptions options;
            options.reduce = reduce;
            options.timeout_ns = timeout_ns;
            // Several segments for the large ones.
            options.exchange_bytes = KiB(48);
            EXPECT_THAT(made->Join(options), Each(IsOk()));
            return made;
          }};
}

// NCCL's own sums are those of the contract for two ranks.
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorContract,
                         testing::Values(NcclBackend(1, kExact, 0),
                                         NcclBackend(2, kNative, 2),
                                         NcclBackend(3, kExact, 1),
                                         NcclBackend(4, kExact, 0)),
                         CommunicatorBackendName());

NcclOptions Soon() {
  NcclOptions options;
  options.timeout_ns = 100'000'000;
  options.start_timeout_ns = 2'000'000'000;
  options.exchange_bytes = KiB(4);
  return options;
}

// Every rank gathers chunk 7 at moment 9, and hears `expected`.
template <typename Matcher>
void ExpectAGatherToEnd(NcclWorld& world, const Matcher& expected) {
  Notes messages;
  world.ForEachRank([&](RankUnderTest& self) {
    std::vector<float> chunk(static_cast<size_t>(64 * self.world()));
    self.comm.AllGather(self.lane, SliceOf(chunk, self.rank(), 64),
                        chunk.data(), Elements(64), DType::kF32, Tag(7, 9));
    const Status status = self.lane.Drain();
    EXPECT_THAT(status, expected);
    EXPECT_EQ(self.comm.Health().message(), status.message());
    messages.Add(std::string(status.message()));
  });
  // In the same words everywhere.
  EXPECT_THAT(messages.all(), Each(messages.all().front()));
}

TEST(NcclCommunicatorTest, NcclsErrorBehindTheCallsEndsTheWorld) {
  NcclWorld world(3);
  NcclOptions patient = Soon();
  patient.timeout_ns = 60'000'000'000;
  ASSERT_THAT(world.Join(patient), Each(IsOk()));
  world.nccl().Hang();
  world.nccl().BreakBehindTheCalls(1, kNcclRemoteError);
  ExpectAGatherToEnd(
      world, StatusIs(ErrorCode::kAborted,
                      Says("rank 1", "chunk 7", "moment 9", "NCCL error 6",
                           "as the test wanted it")));
  EXPECT_EQ(world.nccl().aborted(), 6);
}

TEST(NcclCommunicatorTest, TwoRanksOnOneGpuAreToldHowToShareIt) {
  NcclWorld world(2);
  world.nccl().SayLastError("Duplicate GPU detected : rank 0 and rank 1");
  world.nccl().FailCall("CommGetAsyncError", 1, kNcclInvalidUsage);
  EXPECT_THAT(world.Join(Soon()),
              Each(StatusIs(ErrorCode::kAborted,
                            Says("Duplicate GPU", "NCCL_HOSTID"))));
}

TEST(NcclCommunicatorTest, WhatHangsOnTheDeviceIsAborted) {
  NcclWorld world(2);
  ASSERT_THAT(world.Join(Soon()), Each(IsOk()));
  world.nccl().Hang();
  ExpectAGatherToEnd(
      world, StatusIs(ErrorCode::kAborted,
                      Says("does not end on the device of rank", "operation 0",
                           "chunk 7", "moment 9")));
}

// Devices read and write each other's memory.
TEST(NcclCommunicatorTest, BuffersAreKeptUntilNoRanksDeviceIsAtWork) {
  NcclWorld world(2);
  NcclOptions patient = Soon();
  patient.timeout_ns = 60'000'000'000;
  ASSERT_THAT(world.Join(patient), Each(IsOk()));
  world.nccl().Hang();
  world.nccl().HoldAborts(1);
  world.ForEachRank([&](RankUnderTest& self) {
    std::vector<float> chunk(128);
    self.comm.AllGather(self.lane, SliceOf(chunk, self.rank(), 64),
                        chunk.data(), Elements(64), DType::kF32, Tag(7, 9));
    const Event done = self.lane.Record();
    if (self.rank() == 0) {
      while (world.nccl().calls("AllGather") < 2) std::this_thread::yield();
      self.comm.Abort(DataLoss("checksum"));
      while (world.nccl().aborted() < 2) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_FALSE(done.done()) << "rank 1's device may still touch them";
      world.nccl().Release();
    }
    EXPECT_THAT(self.lane.Drain(), StatusIs(ErrorCode::kDataLoss, "checksum"));
  });
}

TEST(NcclCommunicatorTest, ACallThatNcclRefusesEndsTheWorld) {
  for (const char* const call : {"AllGather", "CommGetAsyncError"}) {
    NcclWorld world(2);
    ASSERT_THAT(world.Join(Soon()), Each(IsOk()));
    world.nccl().FailCall(call, 1, kNcclSystemError);
    ExpectAGatherToEnd(world, StatusIs(ErrorCode::kAborted,
                                       Says("chunk 7", call, "NCCL error 2")));
  }
  NcclWorld world(2);
  ASSERT_THAT(world.Join(Soon()), Each(IsOk()));
  world.nccl().FailCall("Send", 2, kNcclInternalError);
  world.ForEachRank([](RankUnderTest& self) {
    std::vector<float> chunk(static_cast<size_t>(64 * self.world()));
    self.comm.ReduceScatter(self.lane, chunk.data(),
                            SliceOf(chunk, self.rank(), 64), Elements(64),
                            DType::kF32, Tag(8, 9));
    EXPECT_THAT(self.lane.Drain(),
                StatusIs(ErrorCode::kAborted,
                         Says("chunk 8", "ncclSend", "NCCL error 3")));
  });
}

TEST(NcclCommunicatorTest, NcclsOwnSumsKnowOneGroupOfAllRanksOnly) {
  NcclWorld world(4);
  NcclOptions native = Soon();
  native.reduce = kNative;
  ASSERT_THAT(world.Join(native), Each(IsOk()));
  world.ForEachRank([](RankUnderTest& self) {
    std::vector<float> chunk(static_cast<size_t>(64 * self.world()));
    CollectiveTag tag = Tag(7, 9);
    tag.scope = {Among::kWorld, 2};
    self.comm.ReduceScatter(
        self.lane, chunk.data(),
        SliceOf(chunk, tag.scope.place(self.rank(), self.world()), 64),
        Elements(64), DType::kF32, tag);
    const Status status = self.lane.Drain();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()),
                Says("does not know groups", "ask for exact reductions"));
  });
}

TEST(NcclCommunicatorTest, ADeviceThatBreaksEndsTheWorld) {
  NcclWorld world(2);
  ASSERT_THAT(world.Join(Soon()), Each(IsOk()));
  // 700: an illegal address, met when the stream gets to the copy.
  world.cuda().FailWork("Launch", 1, 700);
  world.ForEachRank([](RankUnderTest& self) {
    std::vector<float> chunk(128);
    self.comm.AllGather(self.lane2, SliceOf(chunk, self.rank(), 64),
                        chunk.data(), Elements(64), DType::kF32, Tag(7, 9));
    EXPECT_THAT(self.lane2.Drain(),
                StatusIs(ErrorCode::kIoError,
                         Says("chunk 7", "moment 9", "cudaError700")));
  });
}

TEST(NcclCommunicatorTest, WhatKeepsOneRankFromStartingIsToldToAll) {
  struct Trouble {
    std::function<void(NcclWorld&)> make;
    const char* words;
  };
  const std::vector<Trouble> troubles = {
      {[](NcclWorld& world) {
         world.nccl().FailCall("CommInitRank", 2, kNcclSystemError);
       },
       "ncclCommInitRankConfig on the"},
      {[](NcclWorld& world) {
         world.nccl().FailCall("GetUniqueId", 1, kNcclSystemError);
       },
       "ncclGetUniqueId of rank 0"},
      {[](NcclWorld& world) {
         world.nccl().BreakBehindTheCalls(1, kNcclRemoteError);
       },
       "NCCL error 6"},
      {[](NcclWorld& world) { world.cuda().FailCall("Malloc", 1, 2); },
       "lower the device budget"},
  };
  for (const Trouble& trouble : troubles) {
    NcclWorld world(2);
    trouble.make(world);
    const std::vector<Status> told = world.Join(Soon());
    EXPECT_THAT(told[0].message(), Says(trouble.words));
    EXPECT_EQ(told[0].message(), told[1].message());
  }
}

TEST(NcclCommunicatorTest, RanksThatDifferAreRefused) {
  NcclWorld other_sums(2);
  for (const Status& status : other_sums.Join(Soon(), [](NcclOptions& options) {
         if (options.rank == 1) options.reduce = kNative;
       })) {
    EXPECT_THAT(status, StatusIs(ErrorCode::kFailedPrecondition,
                                 Says("rank 1 has a world of 2, "
                                      "native reductions",
                                      "rank 0 has a world of 2, "
                                      "exact reductions")));
  }
}

TEST(NcclCommunicatorTest, ARankThatNeverComesIsNamed) {
  NcclWorld world(1);
  NcclOptions options = Soon();
  options.start_timeout_ns = 100'000'000;
  EXPECT_THAT(world.Join(options, [](NcclOptions& each) { each.world = 3; }),
              Each(StatusIs(ErrorCode::kUnavailable,
                            Says("ranks 1-2 did not find rank 0"))));
  EXPECT_THAT(world.Join(options, [](NcclOptions& each) { each.rank = 4; }),
              Each(StatusIs(ErrorCode::kInvalidArgument)));
  EXPECT_THAT(world.Join(options,
                         [](NcclOptions& each) {
                           each.world = 2;
                           each.exchange_bytes = Bytes(64);
                         }),
              Each(StatusIs(ErrorCode::kInvalidArgument,
                            Says("64 bytes are too little"))));
}

TEST(NcclCommunicatorTest, ARankThatIsDestroyedIsNotWaitedFor) {
  for (const int gone : {0, 1}) {
    NcclWorld world(2);
    NcclOptions patient = Soon();
    patient.timeout_ns = 60'000'000'000;
    ASSERT_THAT(world.Join(patient), Each(IsOk()));
    WorkerLane lane("lane", world.executor());
    const auto left =
        StatusIs(ErrorCode::kAborted,
                 Says("rank " + std::to_string(gone) + " has left"));
    const int stays = 1 - gone;
    if (gone == 1) {
      // One is waiting already.
      world.comm(stays).Barrier(lane, Tag(1, 2));
      world.Drop(gone);
    } else {
      world.Drop(gone);
      world.comm(stays).Barrier(lane, Tag(1, 2));
    }
    EXPECT_THAT(lane.Drain(), left);
    EXPECT_THAT(world.comm(stays).Health(), left);
  }
}

TEST(NcclCommunicatorTest, MemoryIsRegisteredOnceAndGivenBack) {
  NcclWorld world(1);
  ASSERT_THAT(world.Join(Soon()), Each(IsOk()));
  std::vector<std::byte> slab(4096);
  world.comm(0).RegisterMemory(slab.data(), Bytes(4096));
  EXPECT_EQ(world.nccl().registered(), 2);  // with each communicator
  world.comm(0).UnregisterMemory(slab.data());
  EXPECT_EQ(world.nccl().registered(), 0);
  // A refusal is none of the trainer's business; what is left, goes too.
  world.nccl().FailCall("CommRegister", 1, kNcclInvalidUsage);
  world.comm(0).RegisterMemory(slab.data(), Bytes(4096));
  EXPECT_EQ(world.nccl().registered(), 1);
  EXPECT_THAT(world.comm(0).Health(), IsOk());
  world.Drop(0);
  EXPECT_EQ(world.nccl().registered(), 0);
}

TEST(NcclCommunicatorTest, KeepsDeviceMemoryForExactSumsOnly) {
  NcclWorld exact(2);
  ASSERT_THAT(exact.Join(Soon()), Each(IsOk()));
  EXPECT_EQ(exact.comm(0).buffer_bytes(), KiB(4));
  EXPECT_FALSE(exact.comm(0).needs_host_addressable_memory());
  NcclOptions native = Soon();
  native.reduce = kNative;
  NcclWorld other(2);
  ASSERT_THAT(other.Join(native), Each(IsOk()));
  EXPECT_EQ(other.comm(0).buffer_bytes(), Bytes(0));
}

// The engine on NCCL ranks, over fakes of NCCL and CUDA.

TEST(NcclEngineTest, ComputesTheBitsOfInProcessRanks) {
  for (const int world : {2, 3}) {
    NcclWorld nccl(world);
    NcclOptions options;
    options.exchange_bytes = KiB(4);
    ASSERT_THAT(nccl.Join(options), Each(IsOk()));
    OnEveryRank(world, [&](int rank) {
      ExpectTheBitsOfInProcessRanks(nccl.comm(rank), nccl.device(rank),
                                    *nccl.executor(), world == 2 ? 3 : 1,
                                    world == 2 ? DType::kBF16 : DType::kF32);
    });
    // The device's memory was registered while it was there.
    EXPECT_EQ(nccl.nccl().calls("CommRegister"), 2 * world);
    EXPECT_EQ(nccl.nccl().registered(), 0);
  }
}

// Rank 0 has every rank's part of a piece beside the budgets, and a message
// takes only so much.
TEST(NcclEngineTest, ReadsValuesInPieces) {
  constexpr int kWorld = 3;
  NcclWorld nccl(kWorld);
  NcclOptions exact;
  exact.exchange_bytes = KiB(4);
  ASSERT_THAT(nccl.Join(exact), Each(IsOk()));
  OnEveryRank(kWorld, [&](int rank) {
    Communicator& comm = nccl.comm(rank);
    Log log([](LogLevel, std::string_view) {});
    ZeroOptions options = CheckedOptions(3, comm, *nccl.executor(), log);
    options.device = &nccl.device(rank);
    options.values_piece = Bytes(1000);  // 250 elements
    ASSERT_OK_AND_ASSIGN(const auto engine, ZeroEngine::Create(options, &comm));
    std::vector<ParamId> ids;
    for (const int64_t size : {1, 250, 251, 2999}) {
      ASSERT_OK_AND_ASSIGN(
          ids.emplace_back(),
          engine->Register({std::to_string(size), {size}, DType::kF32},
                           [size](int64_t begin, int64_t end, float* out) {
                             for (int64_t i = begin; i < end; ++i) {
                               out[i - begin] =
                                   static_cast<float>(size * 10'000 + i);
                             }
                           }));
    }
    ASSERT_THAT(engine->Seal({}), IsOk());
    size_t p = 0;
    for (const auto& [size, pieces] :
         {std::pair(1, 1), {250, 1}, {251, 2}, {2999, 12}}) {
      std::vector<float> values(static_cast<size_t>(size));
      const int64_t before = comm.stats().operations;
      ASSERT_THAT(engine->ReadParam(ids[p++], values), IsOk());
      EXPECT_EQ(comm.stats().operations - before, pieces);
      for (int i = 0; i < size; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i)],
                  static_cast<float>(size * 10'000 + i));
      }
    }
    ASSERT_THAT(engine->Close(), IsOk());
  });
}

// Trains on ranks that leave the sums to NCCL, in groups of so many; what each
// rank was told.
std::vector<Status> TrainNatively(NcclWorld& nccl, int world, int shard_group) {
  NcclOptions native;
  native.reduce = NcclOptions::Reduce::kNative;
  EXPECT_THAT(nccl.Join(native), Each(IsOk()));
  std::vector<Status> told(static_cast<size_t>(world));
  OnEveryRank(world, [&](int rank) {
    Log log([](LogLevel, std::string_view) {});
    ZeroOptions options =
        CheckedOptions(3, nccl.comm(rank), *nccl.executor(), log);
    options.device = &nccl.device(rank);
    options.shard_group = shard_group;
    ToyRun run;
    run.worker_lanes = 1;
    told[static_cast<size_t>(rank)] =
        TrainToyRank(MakeToyModel(72, 6, 500, DType::kF32), run, options,
                     &nccl.comm(rank))
            .status;
  });
  return told;
}

// Before anything is trained, and not at the first reduction.
TEST(NcclEngineTest, ShardGroupsAreRefusedAtSealWhereNcclSumsByItself) {
  NcclWorld nccl(4);
  EXPECT_THAT(
      TrainNatively(nccl, 4, 2),
      Each(StatusIs(ErrorCode::kInvalidArgument,
                    Says("one group of all 4 ranks", "shard groups of 2",
                         "take exact reductions"))));
  EXPECT_EQ(nccl.nccl().calls("ReduceScatter"), 0);
  EXPECT_EQ(nccl.nccl().calls("AllGather"), 0);
}

// A group of all ranks is none.
TEST(NcclEngineTest, OneGroupOfAllRanksTrainsWithNcclsOwnSums) {
  NcclWorld nccl(2);
  EXPECT_THAT(TrainNatively(nccl, 2, 2), Each(IsOk()));
  EXPECT_GT(nccl.nccl().calls("ReduceScatter"), 0);
}

}  // namespace
}  // namespace castor
