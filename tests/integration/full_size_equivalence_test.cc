// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The promise of zero_equivalence_test at full size: 28.5 million parameters
// under the budgets of the quick start, against everything resident, and
// against plain training.

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/plain_training.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/train_options.h"
#include "tools/examples/gpt/trainer.h"

namespace castor::gpt {
namespace {

class FullSizeEquivalenceTest : public testing::Test {
 protected:
  static TrainOptions Options(int ranks) {
    TrainOptions options;
    // Short sequences: their length is the time that the test takes.
    options.model.context = 32;
    options.ranks = ranks;
    options.steps = 2;
    options.accumulate = 2;
    options.batch = 1;
    options.engine.clip_norm = 0.5;
    return options;
  }
  TrainOptions Tight(TrainOptions options) const {
    options.engine.device_budget = MiB(64);
    options.engine.host_budget = MiB(96);
    options.engine.nvme = {{.directory = dir_.path(), .size = {}}};
    return options;
  }
  TextData Text() const {
    std::vector<uint8_t> bytes;
    for (int i = 0; i < 100'000; ++i) {
      bytes.push_back(static_cast<uint8_t>('a' + i * (i / 7) % 26));
    }
    return TextData(std::move(bytes));
  }
  static void ExpectEqual(const TrainOutcome& a, const TrainOutcome& b) {
    EXPECT_EQ(a.final_digest, b.final_digest);
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (size_t i = 0; i < a.steps.size(); ++i) {
      EXPECT_EQ(a.steps.last()[i].loss, b.steps.last()[i].loss);
      EXPECT_EQ(a.steps.last()[i].grad_norm, b.steps.last()[i].grad_norm);
    }
  }

  TempDir dir_;
};

TEST_F(FullSizeEquivalenceTest, TwoRanksUnderTightBudgetsEqualAllResident) {
  const auto resident = Train(Options(2), Text(), {});
  const auto tight = Train(Tight(Options(2)), Text(), {});
  ASSERT_THAT(resident, IsOk());
  ASSERT_THAT(tight, IsOk());
  ExpectEqual(*resident, *tight);
  for (const EngineStats& rank : tight->ranks) {
    EXPECT_LE(rank.tiers[0].peak, MiB(64));
    EXPECT_LE(rank.tiers[1].peak, MiB(96));
    EXPECT_GT(rank.tiers[2].peak, MiB(50)) << "the rest is on NVMe";
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(FullSizeEquivalenceTest, OneRankUnderTightBudgetsEqualsPlainTraining) {
  const auto plain = TrainPlainly(Options(1), Text());
  const auto tight = Train(Tight(Options(1)), Text(), {});
  ASSERT_THAT(plain, IsOk());
  ASSERT_THAT(tight, IsOk());
  EXPECT_EQ(tight->final_digest, plain->digest);
  ASSERT_EQ(tight->steps.size(), plain->losses.size());
  for (size_t i = 0; i < plain->losses.size(); ++i) {
    EXPECT_EQ(tight->steps.last()[i].loss, plain->losses[i]);
    EXPECT_EQ(tight->steps.last()[i].grad_norm, plain->norms[i]);
  }
}

}  // namespace
}  // namespace castor::gpt
