// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Ten thousand steps on all tiers, parked now and then: nothing grows.

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

constexpr int kSteps = 10000;
// Until the allocator's and the drive's own caches are full.
constexpr int kWarm = 2000;
constexpr int kParkEvery = 500;

Bytes ResidentMemory() {
  int64_t total = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return Bytes(resident * sysconf(_SC_PAGESIZE));
}

int64_t OpenDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// Caches that grow with the steps: Gemini's of evictable chunks, which keeps
// what it was asked for alive besides (defects D9 and B14).
TEST_F(ZeroEngineTest, TenThousandStepsLeaveNothingBehind) {
  const ToyModel model = MakeToyModel(41, 4, 1200, DType::kF32);
  ToyRun run;
  run.steps = kSteps;
  run.evaluates = [](const ToyMoment& at) {
    return at.step % 700 == 650 && at.point == ToyPoint::kForward &&
           at.param == 2;
  };
  run.between_steps = [](ZeroEngine& engine, int step) {
    if (step % kParkEvery != kParkEvery - 1) return OkStatus();
    const Tier to = step / kParkEvery % 2 == 0 ? Tier::kHost : Tier::kNvme;
    CASTOR_RETURN_IF_ERROR(engine.Park(to).status());
    return engine.Resume();
  };
  std::optional<EngineStats> steady;
  Bytes resident;
  int64_t descriptors = 0;
  int64_t allocations = 0;
  run.after_step = [&](ZeroEngine& engine, int step) {
    const EngineStats stats = engine.stats();
    // What Park makes is counted, and nothing else.
    if (step % kParkEvery == 0) allocations = stats.tier_allocations;
    if (step > 1) {
      ASSERT_EQ(stats.tier_allocations, allocations) << "step " << step;
    }
    if (!steady.has_value() && step == 10) steady = stats;
    if (step > 10) {
      for (Tier tier : kAllTiers) {
        const TierUse& now = stats.tiers[TierIndex(tier)];
        ASSERT_EQ(now.in_use, steady->tiers[TierIndex(tier)].in_use)
            << TierName(tier) << " in step " << step;
      }
    }
    if (step == kWarm) {
      resident = ResidentMemory();
      descriptors = OpenDescriptors();
    } else if (step > kWarm && step % 1000 == 0) {
      EXPECT_LT(ResidentMemory(), resident + MiB(2)) << "step " << step;
      EXPECT_EQ(OpenDescriptors(), descriptors) << "step " << step;
    }
  };
  ZeroOptions options = Tight(3, KiB(24), KiB(48));
  options.clip_norm = 1;
  const ToyResult got = TrainToy(model, run, 2, options);
  ASSERT_THAT(got.status, IsOk());
  ASSERT_TRUE(steady.has_value());
  EXPECT_GT(got.stats.moved[TierIndex(Tier::kNvme)][TierIndex(Tier::kHost)],
            Bytes(0));
  EXPECT_EQ(got.stats.divergences, 0);
  const ToyResult want =
      TrainToyReference(model, run, 2, options.clip_norm, options.optimizer);
  for (size_t p = 0; p < want.weights.size(); ++p) {
    ASSERT_EQ(got.weights[p], want.weights[p]) << "parameter " << p;
  }
}

}  // namespace
}  // namespace castor
