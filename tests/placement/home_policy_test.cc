// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/home_policy.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr size_t kParam = static_cast<size_t>(StateKind::kParam);
constexpr size_t kGrad = static_cast<size_t>(StateKind::kGrad);
constexpr size_t kExpAvg = static_cast<size_t>(StateKind::kExpAvg);
constexpr size_t kExpAvgSq = static_cast<size_t>(StateKind::kExpAvgSq);

// fp32: parameter, gradient and two moments of one size, no masters.
ChunkStates Fp32Chunk(Bytes size) {
  ChunkStates chunk;
  for (size_t k : {kParam, kGrad, kExpAvg, kExpAvgSq}) {
    chunk.device_bytes[k] = chunk.host_bytes[k] = size;
  }
  chunk.moved_params_on_device = size * 3;
  chunk.moved_none_on_device = size * 3;
  return chunk;
}

HomeProblem Problem(int chunks, Bytes device, Bytes host,
                    std::optional<Bytes> nvme) {
  HomeProblem problem;
  problem.chunks.assign(static_cast<size_t>(chunks), Fp32Chunk(KiB(64)));
  problem.device = device;
  problem.host = host;
  problem.nvme = nvme;
  return problem;
}

TEST(HomePolicyTest, EverythingThatFitsTheDeviceLivesThere) {
  const auto homes =
      AssignHomes(Problem(4, KiB(64) * 16, Bytes(0), std::nullopt));
  ASSERT_THAT(homes, IsOk());
  for (const ChunkHomes& h : *homes) {
    for (size_t k : {kParam, kGrad, kExpAvg, kExpAvgSq}) {
      EXPECT_EQ(h[k], Tier::kDevice);
    }
  }
}

TEST(HomePolicyTest, HostTakesParametersBeforeGradientsBeforeMoments) {
  // Room for all parameters, all gradients and half of the first moments.
  const auto homes = AssignHomes(Problem(8, Bytes(0), KiB(64) * 20, MiB(100)));
  ASSERT_THAT(homes, IsOk());
  int exp_avg_on_host = 0;
  for (const ChunkHomes& h : *homes) {
    EXPECT_EQ(h[kParam], Tier::kHost);
    EXPECT_EQ(h[kGrad], Tier::kHost);
    EXPECT_EQ(h[kExpAvgSq], Tier::kNvme);
    exp_avg_on_host += h[kExpAvg] == Tier::kHost;
  }
  EXPECT_EQ(exp_avg_on_host, 4);
}

TEST(HomePolicyTest, ChunksOfOneTierAreSpreadAmongThoseOfAnother) {
  const auto homes = AssignHomes(Problem(8, Bytes(0), KiB(64) * 20, MiB(100)));
  ASSERT_THAT(homes, IsOk());
  for (size_t c = 0; c + 1 < homes->size(); c += 2) {
    EXPECT_NE((*homes)[c][kExpAvg], (*homes)[c + 1][kExpAvg])
        << "chunks " << c << " and " << c + 1;
  }
}

TEST(HomePolicyTest, ParametersAloneGoToTheDeviceWhereThatSavesMore) {
  // Replicated parameters that are refreshed through the link otherwise.
  HomeProblem problem = Problem(4, KiB(64) * 4, MiB(4), std::nullopt);
  for (ChunkStates& chunk : problem.chunks) {
    chunk.moved_none_on_device = KiB(64) * 10;
    chunk.moved_params_on_device = KiB(64);
  }
  const auto homes = AssignHomes(problem);
  ASSERT_THAT(homes, IsOk());
  for (const ChunkHomes& h : *homes) {
    EXPECT_EQ(h[kParam], Tier::kDevice);
    EXPECT_EQ(h[kExpAvg], Tier::kHost);
  }
}

TEST(HomePolicyTest, RefusesWithTheBytesThatAreMissing) {
  EXPECT_THAT(
      AssignHomes(Problem(2, Bytes(0), KiB(64) * 5, std::nullopt)).status(),
      StatusIs(ErrorCode::kInfeasible, HasSubstr("196608 bytes more")));
  EXPECT_THAT(AssignHomes(Problem(2, Bytes(0), KiB(64) * 5, KiB(64))).status(),
              StatusIs(ErrorCode::kInfeasible, HasSubstr("131072 bytes more")));
}

TEST(HomePolicyTest, NeverExceedsABudgetAndLosesNoState) {
  std::mt19937_64 random(TestSeed(4));
  for (int round = 0; round < 2000; ++round) {
    HomeProblem problem;
    const size_t chunks = random() % 12;
    Bytes total;
    for (size_t c = 0; c < chunks; ++c) {
      ChunkStates chunk =
          Fp32Chunk(KiB(4) * static_cast<int64_t>(1 + random() % 16));
      if (random() % 4 == 0) {  // frozen: parameters only
        for (size_t k : {kGrad, kExpAvg, kExpAvgSq}) {
          chunk.device_bytes[k] = chunk.host_bytes[k] = Bytes(0);
        }
      }
      for (Bytes b : chunk.host_bytes) total += b;
      problem.chunks.push_back(chunk);
    }
    const auto part = [&] {
      return total * static_cast<int64_t>(random() % 120) / 100;
    };
    problem.device = part();
    problem.host = part();
    if (random() % 2 == 0) problem.nvme = part();
    const auto homes = AssignHomes(problem);
    if (!homes.ok()) {
      EXPECT_EQ(homes.status().code(), ErrorCode::kInfeasible);
      // A state could not be cut in two, but no whole tier was left unused.
      EXPECT_LT(problem.host, total);
      continue;
    }
    const std::array<Bytes, 3> bytes = HomeBytes(problem.chunks, *homes);
    EXPECT_LE(bytes[0], problem.device);
    EXPECT_LE(bytes[1], problem.host);
    EXPECT_LE(bytes[2], problem.nvme.value_or(Bytes(0)));
    EXPECT_EQ(bytes[0] + bytes[1] + bytes[2], total);
    EXPECT_EQ(*homes, *AssignHomes(problem));
  }
}

}  // namespace
}  // namespace castor
