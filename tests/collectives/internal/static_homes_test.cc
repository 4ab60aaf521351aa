// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/internal/static_homes.h"

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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
  return PlacementOf(TwoChunks(), std::vector<ChunkHomes>(2, homes));
}

TEST(StaticHomesTest, LimitsDecideWhateverTheBudgetsAre) {
  StaticLimits limits;
  limits[kParam].device = 0.5;
  const Result<StaticPlacement> placed =
      PlaceAsAsked(TwoChunks(), limits, {}, false);
  ASSERT_THAT(placed, IsOk());
  EXPECT_EQ(placed->bytes[kParam],
            (std::array<Bytes, 3>{KiB(4), KiB(4), Bytes()}));
  limits[kGrad].host = KiB(4);
  EXPECT_THAT(PlaceAsAsked(TwoChunks(), limits, {}, false),
              StatusIs(ErrorCode::kInfeasible));
  EXPECT_THAT(PlaceAsAsked(TwoChunks(), limits, {}, true), IsOk());
}

TEST(StaticHomesTest, StagingIsForUpdatesOfWhatIsNotInHostMemory) {
  const WorkingSet work{KiB(4), KiB(4), 2, KiB(4)};
  const auto staging = [&](Tier params, Tier grads, Bytes host) {
    const Result<WorkingRoom> room = FitBesideHomes(
        TwoChunks(), Placed(params, grads), work, {MiB(1), host, MiB(1)});
    return room.ok() ? room->staging_slots : -1;
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
  const WorkingSet work{KiB(4), KiB(4), 2, KiB(4)};
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
  const WorkingSet work{KiB(4), KiB(4), 2, KiB(4)};
  const Status refused =
      FitBesideHomes(TwoChunks(), Placed(Tier::kDevice, Tier::kNvme), work,
                     {KiB(10), KiB(19), KiB(7)})
          .status();
  EXPECT_THAT(refused, StatusIs(ErrorCode::kInfeasible));
  EXPECT_THAT(refused.message(),
              Says("device is to be home to 8192 bytes (param 8192 bytes) "
                   "beside 4096 bytes for gathered chunks and leases, and "
                   "its budget is 10240 bytes: raise the device budget by "
                   "2048 bytes, or let it hold as much less; and host is "
                   "to be home to 0 bytes (no state) beside 20480 bytes "
                   "for staging"));
  EXPECT_THAT(refused.message(), Says("raise the NVMe size by 1024"));
}

TEST(StaticHomesTest, RulesAreTakenOutAndPutBack) {
  std::vector<ChunkBindings> bindings(2);
  bindings[0][kGrad] = {3, ParamId(0), Tier::kNvme};
  bindings[1][kParam] = {1, ParamId(1), Tier::kDevice};
  bindings[1][static_cast<size_t>(StateKind::kMaster)] = {1, ParamId(1),
                                                          Tier::kDevice};
  std::vector<ChunkStates> chunks = TwoChunks();
  std::array<Bytes, 3> ruled;
  EXPECT_THAT(TakeRuled(bindings, false, chunks, ruled),
              StatusIs(ErrorCode::kInfeasible,
                       Says("rule 3 puts grad of chunk 0 on NVMe")));
  chunks = TwoChunks();
  ruled = {};
  ASSERT_THAT(TakeRuled(bindings, true, chunks, ruled), IsOk());
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

}  // namespace
}  // namespace castor::internal
