// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_engine.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/in_process_communicator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/toy_trainer.h"

namespace castor {
namespace {

using testing::HasSubstr;

class ZeroEngineTest : public testing::Test {
 protected:
  ZeroOptions Roomy(int stage) {
    ZeroOptions options;
    options.stage = stage;
    options.executor = &pool_;
    options.log = &log_;
    options.chunk_size = KiB(8);
    options.device_budget = MiB(8);
    options.host_budget = MiB(8);
    return options;
  }

  // The device holds little more than the working set, the host part of the
  // rest.
  ZeroOptions Tight(int stage, Bytes device, Bytes host) {
    ZeroOptions options = Roomy(stage);
    options.device_budget = device;
    options.host_budget = host;
    options.nvme = NvmeOption{nvme_.path(), std::nullopt};
    return options;
  }

  Log log_{[](LogLevel, std::string_view) {}};
  ThreadPool pool_{2};
  TempDir nvme_;
};

void ExpectEqual(const ToyResult& got, const ToyResult& want) {
  ASSERT_THAT(got.status, IsOk());
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (size_t p = 0; p < want.weights.size(); ++p) {
    ASSERT_EQ(got.weights[p], want.weights[p]) << "parameter " << p;
  }
  ASSERT_EQ(got.norms, want.norms);
}

void ExpectWithinBudgets(const ToyResult& result) {
  for (Tier tier : kAllTiers) {
    const TierUse& use = result.stats.tiers[TierIndex(tier)];
    EXPECT_LE(use.peak, use.budget) << TierName(tier);
  }
}

TEST_F(ZeroEngineTest, EveryStageAndWorldEqualsPlainArraysBitByBit) {
  const ToyModel model = MakeToyModel(1, 12, 3000, DType::kF32);
  ToyRun run;
  run.micro_batches = 2;
  for (int world : {1, 2, 3}) {
    const ToyResult want =
        TrainToyReference(model, run, world, 0.01, AdamWOptions());
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(testing::Message()
                   << "world " << world << " stage " << stage);
      ZeroOptions options = Roomy(stage);
      options.clip_norm = 0.01;
      const ToyResult got = TrainToy(model, run, world, options);
      ExpectEqual(got, want);
      ExpectWithinBudgets(got);
    }
  }
}

TEST_F(ZeroEngineTest, TightBudgetsWithNvmeChangeNoBit) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(2, 30, 2000, dtype);
    ToyRun run;
    run.micro_batches = 2;
    run.steps = 4;
    for (int world : {1, 2, 3}) {
      const ToyResult want =
          TrainToyReference(model, run, world, 0.02, AdamWOptions());
      for (int stage = 0; stage <= 3; ++stage) {
        for (int depth : {0, 3}) {
          SCOPED_TRACE(testing::Message()
                       << DTypeName(dtype) << " world " << world << " stage "
                       << stage << " prefetch " << depth);
          ZeroOptions options = Tight(stage, KiB(48), KiB(200));
          options.clip_norm = 0.02;
          options.prefetch_depth = depth;
          const ToyResult got = TrainToy(model, run, world, options);
          ExpectEqual(got, want);
          ExpectWithinBudgets(got);
          EXPECT_GT(
              got.stats.moved[TierIndex(Tier::kHost)][TierIndex(Tier::kDevice)],
              Bytes(0));
        }
      }
    }
  }
}

}  // namespace
}  // namespace castor
