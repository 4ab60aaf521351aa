// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/static_homes.h"

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "chunk/text/raises_text.h"
#include "collectives/memory/chunk_states.h"
#include "collectives/memory/memory_demand.h"
#include "collectives/world/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/homes/home_policy.h"
#include "placement/run_event.h"
#include "tests/support/status_matchers.h"

namespace castor::internal {
namespace {

constexpr size_t kParam = static_cast<size_t>(StateKind::kParam);
constexpr size_t kGrad = static_cast<size_t>(StateKind::kGrad);

// Two chunks of parameters and gradients, 4 KiB each.
std::vector<ChunkStates> TwoChunks() {
  ChunkStates chunk;
  for (size_t k : {kParam, kGrad}) {
    chunk.device_bytes[k] = chunk.host_bytes[k] = KiB(4);
  }
  return {chunk, chunk};
}

StaticPlacement Placed(Tier params, Tier grads) {
  ChunkHomes homes;
  homes.fill(params);
  homes[kGrad] = grads;
  return PlacementOf(TwoChunks(), StateNames(),
                     std::vector<ChunkHomes>(2, homes));
}

TEST(StaticHomesTest, LimitsDecideWhateverTheBudgetsAre) {
  StaticLimits limits;
  limits[kParam].device = 0.5;
  ASSERT_OK_AND_ASSIGN(
      const StaticPlacement placed,
      PlaceAsAsked(TwoChunks(), StateNames(), limits, {}, false));
  EXPECT_EQ(placed.bytes[kParam],
            (std::array<Bytes, 3>{KiB(4), KiB(4), Bytes()}));
  limits[kGrad].host = KiB(4);
  EXPECT_THAT(PlaceAsAsked(TwoChunks(), StateNames(), limits, {}, false),
              StatusIs(ErrorCode::kInfeasible));
  EXPECT_THAT(PlaceAsAsked(TwoChunks(), StateNames(), limits, {}, true),
              IsOk());
}

TEST(StaticHomesTest, StagingIsForUpdatesOfWhatIsNotInHostMemory) {
  const WorkingSet work{KiB(4), KiB(4), 2, KiB(4), 5};
  const auto staging = [&](Tier params, Tier grads, Bytes host) {
    const Result<WorkingRoom> room = FitBesideHomes(
        TwoChunks(), Placed(params, grads), work, {MiB(1), host, MiB(1)});
    return room.ok() ? room->staging.staging_slots : -1;
  };
  EXPECT_EQ(staging(Tier::kDevice, Tier::kDevice, Bytes(0)), 0);
  EXPECT_EQ(staging(Tier::kHost, Tier::kHost, KiB(16 + 12)), 3);
  EXPECT_EQ(staging(Tier::kHost, Tier::kHost, KiB(16 + 11)), -1);
  EXPECT_EQ(staging(Tier::kDevice, Tier::kHost, KiB(8 + 12)), 3);
  EXPECT_EQ(staging(Tier::kNvme, Tier::kNvme, KiB(40)), 10);
  EXPECT_EQ(staging(Tier::kNvme, Tier::kNvme, KiB(39)), 5);
  EXPECT_EQ(staging(Tier::kNvme, Tier::kNvme, KiB(19)), -1);
}

TEST(StaticHomesTest, FetchesAheadWithWhatIsLeft) {
  const WorkingSet work{KiB(4), KiB(4), 2, KiB(4), 5};
  const StaticPlacement placed = Placed(Tier::kDevice, Tier::kHost);
  const auto ahead = [&](Bytes device) {
    return FitBesideHomes(TwoChunks(), placed, work,
                          {device, MiB(1), std::nullopt})
        ->ahead;
  };
  EXPECT_EQ(ahead(KiB(12)), 0);
  EXPECT_EQ(ahead(KiB(16)), 1);
  EXPECT_EQ(ahead(KiB(64)), 2);
}

TEST(StaticHomesTest, NamesEveryTierThatLacksBytes) {
  const WorkingSet work{KiB(4), KiB(4), 2, KiB(4), 5};
  const Status refused =
      FitBesideHomes(TwoChunks(), Placed(Tier::kDevice, Tier::kNvme), work,
                     {KiB(10), KiB(19), KiB(7)})
          .status();
  EXPECT_THAT(refused, StatusIs(ErrorCode::kInfeasible));
  EXPECT_THAT(
      refused.message(),
      Says(
          "device is to be home to 8192 bytes (param 8192 bytes) "
          "beside 4096 bytes for gathered chunks and leases, and "
          "its budget is 10240 bytes; and host is to be home to 0 "
          "bytes (no state) beside 20480 bytes for staging",
          "; raise all three, the device budget by 2048 bytes, the host budget "
          "by 1024 bytes and the NVMe size by 1024 bytes; or lower"));
  EXPECT_THAT(refused.raises(),
              testing::ElementsAre(BudgetRaise{KiB(2), KiB(1), KiB(1)}));
}

TEST(StaticHomesTest, RulesAreTakenOutAndPutBack) {
  std::vector<ChunkBindings> bindings(2);
  bindings[0][kGrad] = {3, ParamId(0), Tier::kNvme};
  bindings[1][kParam] = {1, ParamId(1), Tier::kDevice};
  bindings[1][static_cast<size_t>(StateKind::kMaster)] = {1, ParamId(1),
                                                          Tier::kDevice};
  std::vector<ChunkStates> chunks = TwoChunks();
  std::array<Bytes, 3> ruled;
  EXPECT_THAT(TakeRuled(bindings, false, StateNames(), chunks, ruled),
              StatusIs(ErrorCode::kInfeasible,
                       Says("rule 3 puts grad of chunk 0 on NVMe")));
  chunks = TwoChunks();
  ruled = {};
  ASSERT_THAT(TakeRuled(bindings, true, StateNames(), chunks, ruled), IsOk());
  EXPECT_EQ(ruled, (std::array<Bytes, 3>{KiB(4), Bytes(), KiB(4)}));
  EXPECT_EQ(chunks[0].host_bytes[kGrad], Bytes(0));
  EXPECT_EQ(chunks[0].host_bytes[kParam], KiB(4));
  ChunkHomes host;
  host.fill(Tier::kHost);
  std::vector<ChunkHomes> homes(2, host);
  ApplyRuled(bindings, TwoChunks(), homes);
  EXPECT_EQ(homes[0][kGrad], Tier::kNvme);
  EXPECT_EQ(homes[1][kParam], Tier::kDevice);
  EXPECT_EQ(homes[1][kGrad], Tier::kHost);
  EXPECT_EQ(homes[1][static_cast<size_t>(StateKind::kMaster)], Tier::kHost)
      << "there is no such state";
}

// Four chunks of one state of 8 KiB each, one slot of 8 KiB for work.
MemoryDemand FourChunks() {
  MemoryDemand demand;
  ChunkStates chunk;
  chunk.device_bytes[0] = chunk.host_bytes[0] = KiB(8);
  demand.chunks.assign(4, chunk);
  demand.serving = KiB(8);
  demand.all_on_device = KiB(40);
  demand.staging_slot = KiB(8);
  demand.windows = 5;
  return demand;
}

TEST(MemoryDemandTest, SchemesTryWithoutNvmeFirst) {
  const std::vector<HostScheme> without =
      HostSchemes({Bytes(0), Bytes(0), std::nullopt}, 5, KiB(4));
  ASSERT_EQ(without.size(), 1u);
  EXPECT_FALSE(without[0].nvme);
  const std::vector<HostScheme> with =
      HostSchemes({Bytes(0), KiB(40), GiB(1)}, 5, KiB(4));
  ASSERT_EQ(with.size(), 4u);
  EXPECT_FALSE(with[0].nvme);
  for (size_t i = 1; i < with.size(); ++i) {
    EXPECT_TRUE(with[i].nvme);
    EXPECT_GE(with[i].staging_slots - with[i].fetch_slots, 5);
    if (i > 1) {
      EXPECT_LT(with[i].staging_slots, with[i - 1].staging_slots);
    }
  }
}

TEST(MemoryDemandTest, MoreUpdatesAtOneTimeTakeASixthOfTheHostAtMost) {
  const auto most = [](Bytes host) {
    return NvmeSchemes(4, KiB(4), host).front().staging_slots;
  };
  EXPECT_EQ(most(KiB(4) * 20 * 6 - Bytes(1)), 10);
  EXPECT_EQ(most(KiB(4) * 20 * 6), 20);
  EXPECT_EQ(most(KiB(4) * 36 * 6 - Bytes(1)), 20);
  EXPECT_EQ(most(KiB(4) * 36 * 6), 36);
  EXPECT_EQ(most(GiB(1)), 36);
}

TEST(MemoryDemandTest, AnUpdateHasAWindowOnEachStateThatAChunkHas) {
  std::vector<ChunkStates> chunks(2);
  chunks[0].device_bytes[0] = KiB(4);
  EXPECT_EQ(WindowsOfAnUpdate(chunks), 2) << "a part is added to a sum";
  chunks[1].device_bytes.fill(KiB(4));
  EXPECT_EQ(WindowsOfAnUpdate(chunks), kStateKinds);
  chunks[1].device_bytes[1] = Bytes(0);
  EXPECT_EQ(WindowsOfAnUpdate(chunks), kStateKinds - 1);
}

TEST(MemoryDemandTest, HomesGetWhatServingAndStagingLeave) {
  const MemoryDemand demand = FourChunks();
  const Budgets budgets{KiB(20), KiB(30), MiB(1)};
  const std::optional<HomeRoom> room =
      demand.RoomForHomes(budgets, {false, 3}, KiB(4));
  ASSERT_TRUE(room);
  EXPECT_EQ(room->device, KiB(8));
  EXPECT_EQ(room->host, KiB(6));
  EXPECT_FALSE(room->nvme) << "the scheme has none";
  EXPECT_EQ(demand.RoomForHomes(budgets, {true, 3}, Bytes(0))->nvme, MiB(1));
  EXPECT_FALSE(demand.RoomForHomes(budgets, {false, 4}, Bytes(0)));
  EXPECT_FALSE(demand.RoomForHomes(budgets, {false, 3}, KiB(13)));
}

TEST(MemoryDemandTest, FitsOnTheDeviceAloneOrTogetherWithOtherTiers) {
  const MemoryDemand demand = FourChunks();
  EXPECT_TRUE(demand.FitsInto({KiB(40), Bytes(0), std::nullopt}));
  EXPECT_FALSE(demand.FitsInto({KiB(40) - Bytes(1), Bytes(0), std::nullopt}));
  EXPECT_TRUE(demand.FitsInto({KiB(8), KiB(24 + 32), std::nullopt}));
  EXPECT_FALSE(
      demand.FitsInto({KiB(8), KiB(24 + 32) - Bytes(1), std::nullopt}));
  EXPECT_TRUE(demand.FitsInto({KiB(8), KiB(40), KiB(32)}));
  EXPECT_FALSE(demand.FitsInto({KiB(8), KiB(40) - Bytes(1), KiB(32)}));
  EXPECT_FALSE(demand.FitsInto({KiB(8) - Bytes(1), MiB(1), MiB(1)}));
  EXPECT_FALSE(demand.FitsInto({Bytes(-1), MiB(1), MiB(1)}));
}

TEST(MemoryDemandTest, NamesTheSmallestRaiseOfEachBudgetThatServesAlone) {
  const MemoryDemand demand = FourChunks();
  const auto text = [&](const Budgets& budgets) {
    return RaisesText(demand.SmallestRaises(budgets).List(),
                      budgets.nvme.has_value());
  };
  EXPECT_EQ(text({KiB(16), KiB(32), std::nullopt}),
            "raise the device budget by 16384 bytes, or raise the host budget "
            "by 16384 bytes");
  // With a drive the host needs five slots of staging.
  EXPECT_EQ(text({KiB(8), KiB(40), std::nullopt}),
            "raise the device budget by 16384 bytes, or raise the host budget "
            "by 16384 bytes, or give an NVMe directory with 32768 bytes");
  EXPECT_THAT(text({KiB(8), KiB(40), KiB(4)}),
              Says("raise the NVMe size by 28672 bytes"));
  // Nothing but a larger device serves where the slots do not fit it.
  EXPECT_EQ(text({KiB(4), MiB(1), MiB(1)}),
            "raise the device budget by 4096 bytes");
}

// Slots that lack a little of the device, and states that lack a little of the
// host: alone, the device would have to take all states in.
TEST(MemoryDemandTest, NamesARaiseOfTwoBudgetsWhereItIsMuchLess) {
  const MemoryDemand demand = FourChunks();
  Budgets budgets{KiB(7), KiB(54), std::nullopt};
  const BudgetRaises raises = demand.SmallestRaises(budgets);
  EXPECT_FALSE(raises.host);
  ASSERT_TRUE(raises.both);
  EXPECT_EQ(raises.both->device, KiB(1));
  EXPECT_EQ(raises.both->host, KiB(2));
  EXPECT_EQ(raises.List().back(), (BudgetRaise{KiB(1), KiB(2), {}}));
  budgets.device += raises.both->device;
  budgets.host += raises.both->host;
  EXPECT_TRUE(demand.FitsInto(budgets));
}

TEST(MemoryDemandTest, ARaiseOfTheDeviceHoldsTheBuffersThatGrowWithIt) {
  const MemoryDemand demand = FourChunks();
  for (const int world : {2, 3, 8}) {
    for (const Bytes given : {KiB(40), KiB(300), MiB(5), MiB(100)}) {
      MemoryDemand larger = demand;
      larger.all_on_device = larger.serving = given * 3;
      Budgets budgets;
      budgets.world = world;
      budgets.buffers = ExchangeBufferFor(given, world);
      budgets.device = given - budgets.buffers;
      const std::optional<Bytes> raise = larger.SmallestRaises(budgets).device;
      ASSERT_TRUE(raise);
      const Bytes raised = given + *raise;
      budgets.buffers = ExchangeBufferFor(raised, world);
      budgets.device = raised - budgets.buffers;
      EXPECT_TRUE(larger.FitsInto(budgets))
          << world << " ranks, " << given.count();
      EXPECT_LE(raised, given * 3 * 32 / 31 + KiB(64));
    }
  }
}

Bytes On(const std::array<Bytes, kStateKinds>& bytes, StateKind state) {
  return bytes[static_cast<size_t>(state)];
}

// One chunk of 5120 elements, on two ranks.
ChunkLayout Layout(DType dtype, bool trainable) {
  ParamSpec spec;
  spec.name = "w";
  spec.shape = {5120};
  spec.dtype = dtype;
  spec.trainable = trainable;
  PackOptions pack;
  pack.world = 2;
  const Elements sizes[] = {Elements(5120)};
  return *PackChunks(std::vector<ParamSpec>{spec}, sizes, pack);
}

TEST(ChunkStatesTest, ShardsAreRoundedUpToWhatTheirTierWants) {
  const ChunkLayout layout = Layout(DType::kBF16, true);
  const Sharding sharding{.stage = 3, .world = 2};
  const ChunkStates states = StatesOf(layout, sharding, ChunkId(0));
  EXPECT_EQ(On(states.device_bytes, StateKind::kParam), Bytes(5120));
  EXPECT_EQ(On(states.host_bytes, StateKind::kParam), Bytes(8192));
  EXPECT_EQ(On(states.device_bytes, StateKind::kGrad), Bytes(5120));
  EXPECT_EQ(On(states.device_bytes, StateKind::kMaster), Bytes(10240));
  EXPECT_EQ(On(states.host_bytes, OptimizerState(1)), Bytes(12288));
  // Forward, backward, gradient; the update writes the device's copy.
  EXPECT_EQ(states.moved_none_on_device, Bytes(3 * 5120));
  EXPECT_EQ(states.moved_params_on_device, Bytes(2 * 5120));
}

TEST(ChunkStatesTest, WhatIsReplicatedIsKeptWholeAndRefreshed) {
  const ChunkLayout layout = Layout(DType::kF32, true);
  const Sharding sharding{.stage = 2, .world = 2};
  const ChunkStates states = StatesOf(layout, sharding, ChunkId(0));
  EXPECT_EQ(On(states.device_bytes, StateKind::kParam), Bytes(20480));
  EXPECT_EQ(On(states.device_bytes, StateKind::kGrad), Bytes(10240));
  EXPECT_EQ(On(states.device_bytes, StateKind::kMaster), Bytes(0));
  EXPECT_EQ(states.moved_none_on_device, Bytes(3 * 20480 + 10240));
  // Its own slice crosses both ways: it is its own master.
  EXPECT_EQ(states.moved_params_on_device, Bytes(2 * 10240 + 10240));
}

TEST(ChunkStatesTest, FrozenParametersHaveNoOtherStates) {
  const ChunkLayout layout = Layout(DType::kBF16, false);
  const Sharding sharding{.stage = 3, .world = 2};
  const ChunkStates states = StatesOf(layout, sharding, ChunkId(0));
  for (const StateKind state : {StateKind::kGrad, StateKind::kMaster,
                                OptimizerState(0), OptimizerState(1)}) {
    EXPECT_EQ(On(states.host_bytes, state), Bytes(0)) << StateNames().of(state);
  }
  EXPECT_EQ(states.moved_params_on_device, Bytes(0));
}

TEST(ChunkStatesTest, FetchesCostMoreFromFurtherAway) {
  EXPECT_GT(FetchCost(Tier::kDevice), 0);
  EXPECT_LT(FetchCost(Tier::kDevice), FetchCost(Tier::kHost));
  EXPECT_LT(FetchCost(Tier::kHost), FetchCost(Tier::kNvme));
}

}  // namespace
}  // namespace castor::internal
