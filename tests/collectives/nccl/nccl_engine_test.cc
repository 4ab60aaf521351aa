// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The engine on NCCL ranks, over fakes of NCCL and CUDA.

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/nccl/nccl_communicator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/nccl/nccl_engine_check.h"
#include "tests/collectives/nccl/nccl_world_fixture.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

TEST(NcclEngineTest, ComputesTheBitsOfInProcessRanks) {
  for (const int world : {2, 3}) {
    FakeNcclWorld nccl(world);
    NcclOptions options;
    options.exchange_bytes = KiB(4);
    ASSERT_THAT(nccl.Join(options), testing::Each(IsOk()));
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

}  // namespace
}  // namespace castor
