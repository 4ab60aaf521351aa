// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/homes/home_policy.h"

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <utility>
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
constexpr size_t kExpAvg = static_cast<size_t>(OptimizerState(0));
constexpr size_t kExpAvgSq = static_cast<size_t>(OptimizerState(1));

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

// On a drive that writes a tenth as fast as it reads, frozen parameters cost it
// less than gradients that are written, and moments are.
TEST(HomePolicyTest, MeasuredDrivesKeepWhatTheyNeverWrite) {
  HomeProblem problem = Problem(8, Bytes(0), KiB(64) * 12, GiB(1));
  for (size_t c = 0; c < 8; c += 2) {
    ChunkStates frozen;
    frozen.device_bytes[kParam] = frozen.host_bytes[kParam] = KiB(64);
    problem.chunks[c] = frozen;
  }
  const auto on_host = [&](size_t kind, bool frozen) {
    const auto homes = AssignHomes(problem);
    EXPECT_THAT(homes, IsOk());
    int count = 0;
    for (size_t c = frozen ? 0 : 1; c < 8; c += 2) {
      count += (*homes)[c][kind] == Tier::kHost;
    }
    return count;
  };
  EXPECT_EQ(on_host(kParam, true), 4);
  EXPECT_EQ(on_host(kGrad, false), 4);
  EXPECT_EQ(on_host(kExpAvg, false), 0);
  problem.nvme_read = LinkModel{1'000'000'000, 1000};
  EXPECT_EQ(on_host(kParam, true), 4) << "what it writes is not known";
  problem.nvme_write = LinkModel{100'000'000, 1000};
  EXPECT_EQ(on_host(kParam, false), 4);
  EXPECT_EQ(on_host(kGrad, false), 4);
  EXPECT_EQ(on_host(kExpAvg, false), 4);
  EXPECT_EQ(on_host(kParam, true), 0);
  // Reading is what takes long: the frozen ones are read twice.
  std::swap(problem.nvme_read, problem.nvme_write);
  EXPECT_EQ(on_host(kParam, true), 4);
  EXPECT_EQ(on_host(kParam, false), 4);
  EXPECT_EQ(on_host(kGrad, false), 4);
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
      StatusIs(ErrorCode::kInfeasible,
               HasSubstr("raise the host budget by 196608 bytes")));
  EXPECT_THAT(AssignHomes(Problem(2, Bytes(0), KiB(64) * 5, KiB(64))).status(),
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("raise the NVMe size by 131072 bytes")));
}

// A frozen chunk: parameters only.
ChunkStates FrozenChunk(Bytes size) {
  ChunkStates chunk;
  chunk.device_bytes[kParam] = chunk.host_bytes[kParam] = size;
  chunk.moved_none_on_device = size * 2;
  return chunk;
}

TEST(HomePolicyTest, FindsRoomWhereAnEvenSpreadWouldWasteIt) {
  // The host holds 11 of 13 units, but no even spread of these takes the 10.
  HomeProblem problem;
  for (int64_t units : {1, 1, 10, 1}) {
    problem.chunks.push_back(FrozenChunk(KiB(4) * units));
  }
  problem.host = KiB(4) * 11;
  problem.nvme = KiB(4) * 2;
  EXPECT_TRUE(HomesFit(problem.chunks)(problem));
  const auto homes = AssignHomes(problem);
  ASSERT_THAT(homes, IsOk());
  EXPECT_EQ((*homes)[2][kParam], Tier::kHost);
  EXPECT_LE(HomeBytes(problem.chunks, *homes)[2], *problem.nvme);
}

TEST(HomePolicyTest, AChunkLargerThanTheRestDoesNotKeepTheDeviceEmpty) {
  for (Bytes device : {KiB(4) * 3, KiB(4) * 100}) {
    HomeProblem problem;
    for (int64_t units : {1, 1, 100, 1}) {
      problem.chunks.push_back(FrozenChunk(KiB(4) * units));
    }
    problem.device = device;
    problem.host = KiB(4) * 103 - device;
    EXPECT_THAT(AssignHomes(problem), IsOk()) << device;
  }
}

// A state of any size, also of none, on the device in other steps than off it.
ChunkStates RandomChunk(std::mt19937_64& random) {
  ChunkStates chunk;
  for (size_t k = 0; k < static_cast<size_t>(kStateKinds); ++k) {
    if (k != kParam && random() % 4 == 0) continue;
    const Bytes size(static_cast<int64_t>(
        1 + random() % (random() % 5 == 0 ? 90'000 : 9'000)));
    chunk.device_bytes[k] = RoundUp(size, Bytes(512));
    chunk.host_bytes[k] = RoundUp(size, Bytes(4096));
  }
  chunk.moved_none_on_device = chunk.device_bytes[kParam] * 3;
  chunk.moved_params_on_device =
      chunk.device_bytes[kParam] * static_cast<int64_t>(random() % 3);
  return chunk;
}

TEST(HomePolicyTest, MoreBytesOnATierNeverMakeFailWhatFitted) {
  std::mt19937_64 random(TestSeed(5));
  int fitted = 0;
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    HomeProblem problem;
    Bytes total;
    const size_t chunks = 1 + random() % 8;
    for (size_t c = 0; c < chunks; ++c) {
      problem.chunks.push_back(RandomChunk(random));
      for (Bytes b : problem.chunks.back().host_bytes) total += b;
    }
    const auto part = [&](int64_t percent) {
      return total * static_cast<int64_t>(random() % 100) * percent / 10'000;
    };
    problem.device = part(80);
    problem.host = part(80);
    if (random() % 2 == 0) problem.nvme = part(80);
    bool fits = HomesFit(problem.chunks)(problem);
    for (int raise = 0; raise < 12; ++raise) {
      const auto homes = AssignHomes(problem);
      ASSERT_EQ(homes.ok(), HomesFit(problem.chunks)(problem))
          << homes.status();
      ASSERT_TRUE(homes.ok() || !fits) << "round " << round;
      fits = homes.ok();
      ++(fits ? fitted : refused);
      if (fits) {
        const std::array<Bytes, 3> bytes = HomeBytes(problem.chunks, *homes);
        ASSERT_LE(bytes[0], problem.device);
        ASSERT_LE(bytes[1], problem.host);
        ASSERT_LE(bytes[2], problem.nvme.value_or(Bytes(0)));
      }
      const Bytes more(static_cast<int64_t>(random() % 20'000));
      switch (random() % 3) {
        case 0:
          problem.device += more;
          break;
        case 1:
          problem.host += more;
          break;
        case 2:
          problem.nvme = problem.nvme.value_or(Bytes(0)) + more;
          break;
      }
    }
  }
  EXPECT_GT(fitted, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(HomePolicyTest, TheBytesThatAreMissingAreEnough) {
  std::mt19937_64 random(TestSeed(6));
  for (int round = 0; round < 500; ++round) {
    HomeProblem problem;
    const size_t chunks = 1 + random() % 8;
    for (size_t c = 0; c < chunks; ++c) {
      problem.chunks.push_back(RandomChunk(random));
    }
    problem.device = Bytes(static_cast<int64_t>(random() % 50'000));
    problem.host = Bytes(static_cast<int64_t>(random() % 50'000));
    if (random() % 2 == 0) problem.nvme = KiB(4);
    const auto homes = AssignHomes(problem);
    if (homes.ok()) continue;
    ASSERT_EQ(homes.status().raises().size(), 1u) << homes.status();
    const BudgetRaise& raise = homes.status().raises()[0];
    problem.host += raise.host;
    if (problem.nvme) *problem.nvme += raise.nvme;
    EXPECT_TRUE(HomesFit(problem.chunks)(problem)) << homes.status();
  }
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
