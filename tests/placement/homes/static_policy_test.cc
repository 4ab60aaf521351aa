// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/homes/static_policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "collectives/memory/sharding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/homes/home_policy.h"
#include "placement/placement_rules.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kParam = static_cast<size_t>(StateKind::kParam);
constexpr size_t kGrad = static_cast<size_t>(StateKind::kGrad);
constexpr size_t kExpAvg = static_cast<size_t>(OptimizerState(0));
constexpr size_t kExpAvgSq = static_cast<size_t>(OptimizerState(1));
constexpr std::array<size_t, 4> kFp32States = {kParam, kGrad, kExpAvg,
                                               kExpAvgSq};

ChunkStates Chunk(Bytes size, bool trainable = true) {
  ChunkStates chunk;
  for (const size_t k : kFp32States) {
    if (k != kParam && !trainable) continue;
    chunk.device_bytes[k] = size;
    chunk.host_bytes[k] = RoundUp(size, KiB(4));
  }
  return chunk;
}

// Room for anything.
HomeProblem Roomy(std::vector<ChunkStates> chunks) {
  HomeProblem problem;
  problem.chunks = std::move(chunks);
  problem.device = problem.host = GiB(1000);
  problem.nvme = GiB(1000);
  return problem;
}

std::vector<ChunkStates> Equal(size_t count) {
  return std::vector<ChunkStates>(count, Chunk(KiB(64)));
}

StaticLimits OfParams(StateLimits limits) {
  StaticLimits all;
  all[kParam] = limits;
  return all;
}

TEST(StaticPolicyTest, WithoutLimitsEverythingIsOnTheHost) {
  const auto placed = PlaceStatically(Roomy(Equal(5)), {}, {});
  ASSERT_THAT(placed, IsOk());
  for (const ChunkHomes& homes : placed->homes) {
    for (const size_t k : kFp32States) EXPECT_EQ(homes[k], Tier::kHost);
  }
  EXPECT_EQ(placed->bytes[kGrad][1], KiB(64) * 5);
}

// Gemini's fraction does nothing between 0 and almost 1 (defect D5), and that
// of NVMe counts a chunk's bytes for every parameter of it (D12).
TEST(StaticPolicyTest, FractionsAndBytesOfAStateAreWhatComes) {
  for (const auto& [limit, chunks] :
       std::vector<std::pair<StateLimit, int64_t>>{{0.0, 0},
                                                   {0.29, 29},
                                                   {0.5, 50},
                                                   {0.999, 99},
                                                   {1.0, 100},
                                                   {KiB(64) * 7, 7},
                                                   {KiB(64) * 8 - Bytes(1), 7},
                                                   {GiB(500), 100}}) {
    const auto placed = PlaceStatically(
        Roomy(Equal(100)), OfParams({.device = limit, .host = 0.0}), {});
    ASSERT_THAT(placed, IsOk());
    EXPECT_EQ(placed->bytes[kParam][0], KiB(64) * chunks);
    EXPECT_EQ(placed->bytes[kParam][1], Bytes(0));
    EXPECT_EQ(placed->bytes[kParam][2], KiB(64) * (100 - chunks));
    // Other states are not touched.
    EXPECT_EQ(placed->bytes[kGrad][1], KiB(64) * 100);
  }
}

TEST(StaticPolicyTest, SpreadsATiersChunksOverTheModel) {
  const int64_t n = 96;
  for (int64_t k = 1; k < n; ++k) {
    const auto placed = PlaceStatically(
        Roomy(Equal(static_cast<size_t>(n))),
        OfParams({.device = KiB(64) * (k / 2), .host = KiB(64) * (k - k / 2)}),
        {});
    ASSERT_THAT(placed, IsOk());
    std::array<int64_t, 3> seen = {};
    const std::array<int64_t, 3> all = {k / 2, k - k / 2, n - k};
    for (int64_t c = 0; c < n; ++c) {
      ++seen[TierIndex(placed->homes[static_cast<size_t>(c)][kParam])];
      for (size_t t = 0; t < 3; ++t) {
        const double even =
            static_cast<double>(all[t] * (c + 1)) / static_cast<double>(n);
        // A prefix of the model would be off by up to 24.
        ASSERT_LE(std::abs(static_cast<double>(seen[t]) - even), 2.5)
            << "tier " << t << " at chunk " << c << " with " << k;
      }
    }
  }
}

TEST(StaticPolicyTest, AnOversizeChunkKeepsNoTierEmpty) {
  std::vector<ChunkStates> chunks = Equal(9);
  chunks[0] = Chunk(MiB(100));
  const auto placed =
      PlaceStatically(Roomy(chunks), OfParams({.device = KiB(64) * 8}), {});
  ASSERT_THAT(placed, IsOk());
  EXPECT_EQ(placed->bytes[kParam][0], KiB(64) * 8);
  EXPECT_EQ(placed->homes[0][kParam], Tier::kHost);
}

TEST(StaticPolicyTest, AStateThatIsNotThereFollowsItsParameters) {
  std::vector<ChunkStates> chunks = Equal(2);
  chunks[1] = Chunk(KiB(64), /*trainable=*/false);
  const auto placed =
      PlaceStatically(Roomy(chunks), OfParams({.device = 1.0}), {});
  ASSERT_THAT(placed, IsOk());
  EXPECT_EQ(placed->homes[0][kGrad], Tier::kHost);
  EXPECT_EQ(placed->homes[1][kGrad], Tier::kDevice);
  EXPECT_EQ(placed->bytes[kGrad][1], KiB(64));
}

TEST(StaticPolicyTest, RefusesWhatDoesNotFitWithTheBytes) {
  HomeProblem problem = Roomy(Equal(4));
  problem.device = KiB(64) * 5;
  StaticLimits limits = OfParams({.device = 1.0});
  limits[kGrad].device = 0.5;
  EXPECT_THAT(
      PlaceStatically(problem, limits, {}),
      StatusIs(ErrorCode::kInfeasible,
               AllOf(HasSubstr("device is to be home to 393216 bytes"),
                     HasSubstr("param 262144 bytes, grad 131072 bytes"),
                     HasSubstr("raise the device budget by 65536 bytes"))));
  problem = Roomy(Equal(4));
  problem.nvme.reset();
  EXPECT_THAT(
      PlaceStatically(problem, OfParams({.device = 0.25, .host = 0.5}), {}),
      StatusIs(ErrorCode::kInfeasible,
               AllOf(HasSubstr("limits of param leave 65536 bytes of it over"),
                     HasSubstr("there is no NVMe tier"))));
  problem.nvme = GiB(1);
  EXPECT_THAT(
      PlaceStatically(problem, OfParams({.host = 0.5, .nvme = KiB(64)}), {}),
      StatusIs(ErrorCode::kInfeasible, HasSubstr("65536 bytes")));
  for (const StateLimit bad :
       {StateLimit(-0.1), StateLimit(1.5), StateLimit(std::nan("")),
        StateLimit(Bytes(-1))}) {
    EXPECT_THAT(PlaceStatically(problem, OfParams({.device = bad}), {}),
                StatusIs(ErrorCode::kInvalidArgument));
  }
}

TEST(StaticPolicyTest, RulesGoFirstAndCount) {
  const HomeProblem problem = Roomy(Equal(10));
  std::vector<ChunkBindings> bindings(10);
  for (const size_t c : {3, 4, 5}) {
    bindings[c][kParam] = {0, ParamId(7), Tier::kDevice};
  }
  bindings[6][kParam] = {1, ParamId(8), Tier::kNvme};
  // Nothing else is asked for on the device.
  auto placed = PlaceStatically(problem, {}, bindings);
  ASSERT_THAT(placed, IsOk());
  EXPECT_EQ(placed->bytes[kParam][0], KiB(64) * 3);
  EXPECT_EQ(placed->homes[4][kParam], Tier::kDevice);
  EXPECT_EQ(placed->homes[6][kParam], Tier::kNvme);
  placed =
      PlaceStatically(problem, OfParams({.device = KiB(64) * 5}), bindings);
  ASSERT_THAT(placed, IsOk());
  EXPECT_EQ(placed->bytes[kParam][0], KiB(64) * 5);
  EXPECT_EQ(placed->homes[4][kParam], Tier::kDevice);
  EXPECT_THAT(
      PlaceStatically(problem, OfParams({.device = KiB(64) * 2}), bindings),
      StatusIs(ErrorCode::kInfeasible,
               AllOf(HasSubstr("rules put 196608 bytes of param on device"),
                     HasSubstr("raise it by 65536 bytes"))));
  HomeProblem without = problem;
  without.nvme.reset();
  EXPECT_THAT(PlaceStatically(without, {}, bindings),
              StatusIs(ErrorCode::kInfeasible, HasSubstr("rule 1 puts param")));

  const std::vector<PlacementRule> rules = {{.glob = "a*"}, {.glob = "b*"}};
  std::vector<ParamSpec> params(9);
  params[7].name = "ab";
  EXPECT_EQ(ExplainPlacement(*placed, bindings, rules, params, ChunkId(4),
                             StateKind::kParam),
            "chunk 4: param on device by rule 0 (\"a*\": all on device), which "
            "matches \"ab\"");
  EXPECT_EQ(ExplainPlacement(*placed, bindings, rules, params, ChunkId(0),
                             StateKind::kGrad),
            "chunk 0: grad on host by the limits, which put 655360 bytes of "
            "grad there");
}

// Limits of one random instance, all of which a larger one raises.
struct Limits {
  Bytes device;
  Bytes host;
};

TEST(StaticPolicyTest, MoreIsNeverSlowerAndEveryTierIsFullToAChunk) {
  std::mt19937_64 random(TestSeed(20261122));
  const auto pick = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int i = 0; i < 2000; ++i) {
    std::vector<ChunkStates> chunks;
    Bytes total;
    Bytes largest;
    for (int64_t c = pick(40); c >= 0; --c) {
      // Some oversize, some frozen.
      const Bytes size = KiB(4) * (pick(6) == 0 ? 1 + pick(50) : 4);
      chunks.push_back(Chunk(size, pick(4) != 0));
      total += size;
      largest = std::max(largest, size);
    }
    std::vector<ChunkBindings> bindings(chunks.size());
    Bytes ruled;
    for (size_t c = 0; c < chunks.size() && i % 3 == 0; ++c) {
      if (pick(8) != 0) continue;
      bindings[c][kParam] = {0, ParamId(0), Tier::kDevice};
      ruled += chunks[c].device_bytes[kParam];
    }
    const HomeProblem problem = Roomy(chunks);
    const auto place = [&](const Limits& limits) {
      auto placed = PlaceStatically(
          problem, OfParams({.device = limits.device, .host = limits.host}),
          bindings);
      EXPECT_THAT(placed, IsOk());
      return *placed;
    };
    const int64_t units = total / KiB(1);
    const Limits less = {ruled + KiB(1) * pick(units), KiB(1) * pick(units)};
    const Limits more = {less.device + KiB(1) * pick(units),
                         less.host + KiB(1) * pick(units)};
    const StaticPlacement first = place(less);
    const StaticPlacement second = place(more);
    ASSERT_EQ(place(less).homes, first.homes);
    for (size_t c = 0; c < chunks.size(); ++c) {
      ASSERT_LE(TierIndex(second.homes[c][kParam]),
                TierIndex(first.homes[c][kParam]))
          << "chunk " << c;
    }
    const auto& bytes = first.bytes[kParam];
    EXPECT_EQ(bytes[0] + bytes[1] + bytes[2], total);
    EXPECT_LE(bytes[0], less.device);
    EXPECT_LE(bytes[1], less.host);
    // Room left over is less than a chunk, or nothing was left to take.
    if (bytes[1] + bytes[2] > Bytes(0)) {
      EXPECT_LT(less.device - bytes[0], largest);
    }
    if (bytes[2] > Bytes(0)) {
      EXPECT_LT(less.host - bytes[1], largest);
    }
    EXPECT_EQ(HomeBytes(chunks, first.homes)[2], bytes[2]);
  }
}

// By what is the same on every rank: not by how much room there is beside what
// was asked for, nor by what anybody measured, nor in the order of a hash
// (Gemini's, defect D17). The policy for homes, which asks all of that, answers
// each of these ranks differently.
TEST(StaticPolicyTest, AllRanksChooseAlike) {
  std::vector<ParamSpec> params;
  for (int p = 0; p < 40; ++p) {
    params.push_back({std::to_string(p),
                      {p % 7 == 0 ? 9000 : 500 + 30 * p},
                      DType::kF32,
                      true});
  }
  PackOptions pack;
  pack.world = 4;
  const std::vector<Elements> size = {Elements(2048)};
  const ChunkLayout layout = PackChunks(params, size, pack).value();
  StaticLimits limits = OfParams({.device = 0.3, .host = 0.4});
  limits[kExpAvg] = {.device = {}, .host = KiB(20), .nvme = {}};
  StaticPlacement of_first;
  std::vector<std::vector<ChunkHomes>> measured;
  for (int rank = 0; rank < pack.world; ++rank) {
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    const Sharding sharding = {.stage = 3, .world = 4, .rank = rank};
    std::vector<ChunkStates> chunks;
    for (size_t c = 0; c < layout.chunks().size(); ++c) {
      const ShardRange kept = sharding.kept(StateKind::kParam, layout,
                                            ChunkId(static_cast<int32_t>(c)));
      chunks.push_back(Chunk(BytesOf(kept.end - kept.begin, DType::kF32)));
    }
    HomeProblem problem = Roomy(chunks);
    if (rank > 0) {
      // What rank 0 takes and not a byte more, more on one tier, on another.
      const std::array<Bytes, 3> taken = HomeBytes(chunks, of_first.homes);
      problem.device = taken[0] + KiB(64) * (rank == 2 ? 1 : 0);
      problem.host = taken[1] + KiB(64) * (rank == 3 ? 1 : 0);
      problem.nvme = taken[2] + (rank == 1 ? Bytes(0) : KiB(256));
      // The drive of one writes slowly, another's reads slowly.
      problem.nvme_read = LinkModel{rank == 2 ? 1'000'000 : 900'000'000, 10};
      problem.nvme_write = LinkModel{rank == 3 ? 1'000'000 : 900'000'000, 10};
    }
    const auto placed = PlaceStatically(problem, limits, {});
    ASSERT_THAT(placed, IsOk());
    if (rank == 0) of_first = *placed;
    EXPECT_EQ(placed->homes, of_first.homes);
    EXPECT_EQ(placed->bytes, of_first.bytes);
    const auto assigned = AssignHomes(problem);
    ASSERT_THAT(assigned, IsOk());
    for (const std::vector<ChunkHomes>& other : measured) {
      EXPECT_NE(*assigned, other);
    }
    measured.push_back(*assigned);
  }
}

}  // namespace
}  // namespace castor
