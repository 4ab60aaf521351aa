// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The engine on NCCL ranks, over fakes of NCCL and CUDA.

#include <cstddef>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/nccl/nccl_communicator.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/nccl/nccl_engine_check.h"
#include "tests/collectives/nccl/nccl_world_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/toy_model.h"
#include "tests/support/toy_trainer.h"

namespace castor {
namespace {

using testing::Each;

TEST(NcclEngineTest, ComputesTheBitsOfInProcessRanks) {
  for (const int world : {2, 3}) {
    FakeNcclWorld nccl(world);
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

// Trains on ranks that leave the sums to NCCL, in groups of so many; what each
// rank was told.
std::vector<Status> TrainNatively(FakeNcclWorld& nccl, int world,
                                  int shard_group) {
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
  FakeNcclWorld nccl(4);
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
  FakeNcclWorld nccl(2);
  EXPECT_THAT(TrainNatively(nccl, 2, 2), Each(IsOk()));
  EXPECT_GT(nccl.nccl().calls("ReduceScatter"), 0);
}

}  // namespace
}  // namespace castor
