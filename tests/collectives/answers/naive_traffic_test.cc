// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/collectives/answers/naive_traffic.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/memory/sharding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/homes/static_policy.h"
#include "placement/trace/step_trace.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

// Two chunks of 4 KiB, a parameter each, whose states live where they are told
// to.
class NaiveTrafficTest : public testing::Test {
 protected:
  void Make(int stage, int world, Tier home, DType dtype = DType::kF32) {
    const int64_t elements = 4096 * 8 / DTypeBits(dtype);
    std::vector<ParamSpec> params;
    for (const char* name : {"a", "b"}) {
      params.push_back({name, {elements}, dtype, true});
    }
    PackOptions pack;
    pack.world = world;
    const Elements sizes[] = {Elements(elements)};
    layout_ = *PackChunks(params, sizes, pack);
    MemoryPlanInput input;
    input.layout = &layout_;
    input.sharding = sharding_ = {.stage = stage, .world = world};
    input.device_budget = input.host_budget = MiB(4);
    input.nvme_budget = MiB(4);
    StaticLimits limits;
    for (StateLimits& each : limits) {
      if (home == Tier::kDevice) each.device = 1.0;
      if (home == Tier::kNvme) each.host = 0.0;
    }
    input.limits = limits;
    const Result<MemoryPlan> memory = PlanMemory(input);
    ASSERT_THAT(memory, IsOk());
    memory_ = *memory;
  }

  // A step in which chunk 0 alone has a gradient, reduced so often. Each gather
  // reads the chunk's home unless said otherwise.
  StepTraffic Step(std::vector<int64_t> gathers, int reductions,
                   std::vector<int64_t> loads = {}) {
    if (loads.empty()) loads = gathers;
    StepTrace step;
    for (int r = 0; r < reductions; ++r) {
      step.accesses.push_back({AccessKind::kGradOpen, ChunkId(0)});
      step.accesses.push_back({AccessKind::kGradClose, ChunkId(0)});
    }
    trace_ = step;
    return NaiveTrafficOf(
        layout_, sharding_, memory_,
        {.gathers = gathers, .loads = loads, .trace = &trace_});
  }

  ChunkLayout layout_{1, Elements(64), {}, {}, {}};
  Sharding sharding_;
  MemoryPlan memory_;
  StepTrace trace_;
};

TEST_F(NaiveTrafficTest, FromHostMemoryShardsGoUpAndGradientsComeDown) {
  Make(3, 2, Tier::kHost);
  const StepTraffic step = Step({3, 1}, 2);
  // A shard is half a chunk.
  EXPECT_EQ(step.on(Tier::kHost, Tier::kDevice), (LinkTraffic{KiB(8), 4}));
  EXPECT_EQ(step.on(Tier::kDevice, Tier::kHost), (LinkTraffic{KiB(4), 2}));
  EXPECT_EQ(step.all_gather, (LinkTraffic{KiB(8), 4}));
  EXPECT_EQ(step.reduce_scatter, (LinkTraffic{KiB(4), 2}));
  EXPECT_EQ(step.gathers, 4);
  EXPECT_EQ(step.updated_on_host, Elements(512));
  EXPECT_EQ(step.updated_on_device, Elements(0));
  EXPECT_EQ(step.on(Tier::kNvme, Tier::kHost), LinkTraffic());
  // Eight words, whatever the parameters, of which either rank sums half.
  EXPECT_EQ(step.agreement, Bytes(8) * (4 + 4));
  EXPECT_EQ(step.wire_sent(), KiB(12) + Bytes(64));
}

TEST_F(NaiveTrafficTest, CopiesOfShardsSpareTheWayFromHomeNotTheWire) {
  Make(3, 2, Tier::kHost);
  const StepTraffic step = Step({3, 1}, 1, {1, 1});
  EXPECT_EQ(step.on(Tier::kHost, Tier::kDevice), (LinkTraffic{KiB(4), 2}));
  EXPECT_EQ(step.all_gather, (LinkTraffic{KiB(8), 4}));
  EXPECT_EQ(step.gathers, 4);
  EXPECT_EQ(step.fetches, 2);
}

TEST_F(NaiveTrafficTest, FromADriveStatesPassHostMemoryInWholeBlocks) {
  Make(3, 2, Tier::kNvme);
  const StepTraffic step = Step({1, 0}, 1);
  // Every shard of 2 KiB is a block of 4 KiB. Read: the parameter to gather,
  // and gradient, parameter and both moments for the update; fp32 parameters
  // are their own masters.
  EXPECT_EQ(step.on(Tier::kNvme, Tier::kHost), (LinkTraffic{KiB(20), 5}));
  // Written: the gradient, and all but it after the update.
  EXPECT_EQ(step.on(Tier::kHost, Tier::kNvme), (LinkTraffic{KiB(16), 4}));
  EXPECT_EQ(step.on(Tier::kHost, Tier::kDevice), (LinkTraffic{KiB(2), 1}));
  EXPECT_EQ(step.on(Tier::kDevice, Tier::kHost), (LinkTraffic{KiB(2), 1}));
  // The second gradient of a step is added to what is read back.
  const StepTraffic twice = Step({1, 0}, 2);
  EXPECT_EQ(twice.on(Tier::kNvme, Tier::kHost).transfers, 6);
  EXPECT_EQ(twice.on(Tier::kHost, Tier::kNvme).transfers, 5);
}

TEST_F(NaiveTrafficTest, OnTheDeviceOnlyRanksTalk) {
  Make(3, 2, Tier::kDevice);
  const StepTraffic step = Step({2, 0}, 1);
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      EXPECT_EQ(step.on(from, to), LinkTraffic());
    }
  }
  EXPECT_EQ(step.all_gather, (LinkTraffic{KiB(4), 2}));
  EXPECT_EQ(step.updated_on_device, Elements(512));
}

TEST_F(NaiveTrafficTest, AReplicaIsRefreshedThroughASlotUnlessItIsOnTheDevice) {
  Make(1, 2, Tier::kHost, DType::kBF16);
  const StepTraffic step = Step({1, 0}, 1);
  // The whole for use; the own slice to refresh, and the whole home again.
  EXPECT_EQ(step.on(Tier::kHost, Tier::kDevice), (LinkTraffic{KiB(6), 2}));
  EXPECT_EQ(step.on(Tier::kDevice, Tier::kHost), (LinkTraffic{KiB(6), 2}));
  EXPECT_EQ(step.all_gather, (LinkTraffic{KiB(2), 1}));
  Make(1, 2, Tier::kDevice);
  EXPECT_EQ(Step({0, 0}, 1).on(Tier::kDevice, Tier::kHost), LinkTraffic());
  Make(1, 1, Tier::kHost);
  EXPECT_EQ(Step({0, 0}, 1).all_gather, LinkTraffic());
}

TEST_F(NaiveTrafficTest, OneRankSendsNothing) {
  Make(3, 1, Tier::kHost);
  const StepTraffic step = Step({1, 1}, 1);
  EXPECT_EQ(step.wire_sent(), Bytes(0));
  EXPECT_EQ(step.on(Tier::kHost, Tier::kDevice).bytes, KiB(8));
}

}  // namespace
}  // namespace castor
