// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/trainer.h"

#include <atomic>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "collectives/loss_scaler.h"
#include "collectives/lr_schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor::gpt {
namespace {

using testing::HasSubstr;

TextData Verse() {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "A glooming peace this morning brings. ";
  return TextData(std::vector<uint8_t>(text.begin(), text.end()));
}

TrainOptions Small(int ranks) {
  TrainOptions options;
  options.model = {
      .vocab = 256, .context = 16, .layers = 2, .heads = 2, .embd = 64};
  options.ranks = ranks;
  options.steps = 3;
  options.engine.chunk_size = KiB(128);
  return options;
}

TEST(TrainerTest, ReportsEveryStepAndEveryRank) {
  std::vector<int64_t> seen;
  TrainHooks hooks;
  hooks.on_step = [&](const StepReport& report) {
    seen.push_back(report.step);
    EXPECT_EQ(report.tokens, 2 * 2 * 16);
    EXPECT_GT(report.tiers[0].in_use, Bytes(0));
  };
  TrainOptions options = Small(2);
  options.digest_step = 2;
  const auto outcome = Train(options, Verse(), hooks);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_THAT(seen, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(outcome->steps.size(), 3u);
  EXPECT_EQ(outcome->ranks.size(), 2u);
  EXPECT_EQ(outcome->digests.count(2), 1u);
  EXPECT_FALSE(outcome->stopped_early);
  EXPECT_GT(outcome->ranks[0].wire_sent, Bytes(0));
}

// Who gives no budget and shares everything asks for memory.
TEST(TrainerTest, WithoutABudgetAStageHoldsShardsAndWhatItPrefetches) {
  const auto peak = [](int ranks, bool keep) {
    TrainOptions options = Small(ranks);
    options.engine.chunk_size = KiB(16);
    options.engine.stage = 3;
    options.keep_copies = keep;
    const auto outcome = Train(options, Verse(), {});
    EXPECT_THAT(outcome, IsOk());
    return std::pair(outcome->ranks[0].tiers[0].peak, outcome->final_digest);
  };
  const auto [alone, unused] = peak(1, false);
  const auto [bare, digest] = peak(2, false);
  const auto [kept, same_digest] = peak(2, true);
  EXPECT_EQ(digest, same_digest);
  // Half of the states, and a few chunks gathered.
  EXPECT_LT(bare, alone * 3 / 4);
  EXPECT_GT(kept, bare + KiB(16) * 4);
}

TEST(TrainerTest, HalfPrecisionLearnsWithAnyGradients) {
  for (const GradMode mode : {GradMode::kSeparate, GradMode::kFp32}) {
    TrainOptions options = Small(2);
    options.dtype = DType::kF16;
    options.accumulate = 2;
    options.steps = 6;
    options.lr = 3e-3;
    options.engine.grad_mode = mode;
    options.engine.accumulation = AccumulationOrder::kLast;
    options.engine.loss_scaling.kind = LossScalingKind::kDynamic;
    const auto outcome = Train(options, Verse(), {});
    ASSERT_THAT(outcome, IsOk());
    EXPECT_LT(outcome->steps.back().loss,
              outcome->steps.first().front().loss - 0.5);
  }
}

TEST(TrainerTest, GradientsInThePlaceOfParametersEndInTheSameWeights) {
  TrainOptions options = Small(2);
  options.dtype = DType::kBF16;
  const auto separate = Train(options, Verse(), {});
  ASSERT_THAT(separate, IsOk());
  options.engine.grad_mode = GradMode::kReuse;
  for (int stage : {0, 2, 3}) {
    for (Bytes device : {Bytes(0), MiB(1)}) {
      options.engine.stage = stage;
      options.engine.device_budget = device;
      options.engine.host_budget = MiB(8);
      const auto reuse = Train(options, Verse(), {});
      ASSERT_THAT(reuse, IsOk());
      EXPECT_EQ(reuse->final_digest, separate->final_digest)
          << "stage " << stage << " device " << device;
      EXPECT_EQ(reuse->steps.back().loss, separate->steps.back().loss);
    }
  }
  options.accumulate = 2;
  EXPECT_THAT(
      Train(options, Verse(), {}),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--accumulate 1")));
}

TEST(TrainerTest, MoreRanksThanCoresRun) {
  TrainOptions options = Small(8);
  options.steps = 1;
  EXPECT_THAT(Train(options, Verse(), {}), IsOk());
}

TEST(TrainerTest, AllRanksStopAfterTheSameStep) {
  std::atomic<bool> stop = false;
  TrainHooks hooks;
  hooks.stop = &stop;
  hooks.on_step = [&](const StepReport& report) {
    if (report.step == 2) stop = true;
  };
  TrainOptions options = Small(3);
  options.steps = 1000;
  const auto outcome = Train(options, Verse(), hooks);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_TRUE(outcome->stopped_early);
  EXPECT_GE(outcome->steps.size(), 2u);
  EXPECT_LE(outcome->steps.size(), 4u);
}

TEST(TrainerTest, AStopBeforeTheFirstStepMakesNone) {
  const std::atomic<bool> stop = true;
  const auto outcome = Train(Small(2), Verse(), {.on_step = {}, .stop = &stop});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_TRUE(outcome->stopped_early);
  EXPECT_TRUE(outcome->steps.empty());
}

TEST(TrainerTest, AStopInTheLastStepIsNoEarlyStop) {
  std::atomic<bool> stop = false;
  TrainHooks hooks;
  hooks.stop = &stop;
  hooks.on_step = [&](const StepReport& report) { stop = report.step == 3; };
  const auto outcome = Train(Small(2), Verse(), hooks);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_FALSE(outcome->stopped_early);
  EXPECT_EQ(outcome->steps.size(), 3u);
}

TEST(TrainerTest, ABudgetThatCannotDoIsRefusedBeforeTheFirstStep) {
  for (int ranks : {1, 3}) {
    TrainOptions options = Small(ranks);
    options.engine.device_budget = KiB(64);
    TrainHooks hooks;
    hooks.on_step = [](const StepReport&) { ADD_FAILURE() << "a step"; };
    EXPECT_THAT(Train(options, Verse(), hooks),
                StatusIs(ErrorCode::kInfeasible, HasSubstr("device")));
  }
}

TEST(TrainerTest, ADriveThatIsNotThereEndsAllRanks) {
  TempDir dir;
  TrainOptions options = Small(3);
  options.engine.device_budget = KiB(512);
  options.engine.host_budget = KiB(640);
  options.engine.nvme = {{.directory = dir.path() / "missing", .size = {}}};
  EXPECT_THAT(Train(options, Verse(), {}),
              StatusIs(ErrorCode::kUnavailable, HasSubstr("missing")));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(TrainerTest, LeavesNothingOnTheDrive) {
  TempDir dir;
  TrainOptions options = Small(2);
  options.engine.device_budget = KiB(512);
  options.engine.host_budget = KiB(640);
  options.engine.nvme = {{.directory = dir.path(), .size = {}}};
  const auto outcome = Train(options, Verse(), {});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_GT(outcome->ranks[0].tiers[2].peak, Bytes(0));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// A run of any length is summed up in bounded memory.
TEST(StepHistoryTest, KeepsBothEndsAndSumsOfAll) {
  StepHistory history;
  EXPECT_TRUE(history.empty());
  constexpr int64_t kSteps = 5 * int64_t{StepHistory::kLast} + 7;
  for (int64_t step = 1; step <= kSteps; ++step) {
    StepReport report;
    report.step = step;
    report.seconds = 0.5;
    report.tokens = 3;
    history.push_back(report);
    const auto made = static_cast<size_t>(step);
    EXPECT_EQ(history.size(), made);
    EXPECT_EQ(history.last().size(), std::min(made, StepHistory::kLast));
    EXPECT_EQ(history.last().back().step, step);
    EXPECT_EQ(history.last().front().step,
              step + 1 - std::ssize(history.last()));
  }
  ASSERT_EQ(history.first().size(), StepHistory::kFirst);
  EXPECT_EQ(history.first().back().step, 5);
  EXPECT_EQ(history.first().front().step, 1);
  EXPECT_EQ(history.tokens(), 3 * kSteps);
  EXPECT_EQ(history.seconds(), 0.5 * kSteps);
}

}  // namespace
}  // namespace castor::gpt
