// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What `castor plan` says of a trainer that says what its step is, next to what
// that trainer then takes and moves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "collectives/answers/plan_file.h"
#include "offload/record/record_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"
#include "tools/bench/support/drawn_plans.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/train_options.h"
#include "tools/examples/gpt/trainer.h"

namespace castor {
namespace {

constexpr int kPlans = 75;  // of each shard
constexpr int kShards = 4;
constexpr int64_t kSteps = 5;

gpt::TextData Text() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += std::to_string(i * i) + " squares. ";
  return gpt::TextData(std::vector<uint8_t>(text.begin(), text.end()));
}

class PlanAgainstRunTest : public testing::TestWithParam<int> {
 protected:
  // As train_gpt --plan does.
  gpt::TrainOptions Follows(const DrawnPlan& drawn, const PlanSubject& subject,
                            const PlanOutcome& outcome) const {
    gpt::TrainOptions train;
    train.model = drawn.model;
    train.dtype = drawn.dtype;
    train.batch = 1;
    train.ranks = drawn.flags.world;
    train.accumulate = static_cast<int>(drawn.flags.step.micro_batches);
    train.steps = kSteps;
    train.engine.clip_norm = drawn.flags.engine.clip_norm;
    if (drawn.flags.nvme) {
      train.engine.nvme = {{folder_.path().string(), std::nullopt}};
    }
    const Result<PlanFile> plan =
        ParsePlan(WritePlan(PlanFileOf(subject, outcome)));
    EXPECT_THAT(plan, IsOk());
    EXPECT_THAT(CheckPlanFits(*plan, gpt::SpecsOf(train.model, train.dtype),
                              train.ranks, /*processes=*/false),
                IsOk());
    EXPECT_THAT(ApplyPlan(*plan, &train.engine), IsOk());
    return train;
  }

  // Bytes of links in a step, and peaks.
  void ExpectTheSameBytes(const PlanSubject& subject,
                          const PlanOutcome& outcome,
                          const std::string& record) {
    Status complete;
    const Result<Document> compared =
        CompareWithRun(subject, outcome, record, &complete);
    ASSERT_THAT(compared, IsOk());
    EXPECT_THAT(complete, IsOk());
    const JsonValue& rows = compared->Json();
    EXPECT_EQ(rows["steps"].integer(), kSteps - 2);
    EXPECT_GT(rows["peaks"].size(), 0u);
    for (const char* const table : {"peaks", "links"}) {
      for (const JsonValue& row : rows[table]) {
        EXPECT_EQ(row["planned_bytes"], row["measured_bytes"])
            << table << " " << row["what"].text();
      }
    }
  }

  TempDir folder_;
};

TEST_P(PlanAgainstRunTest, TheLeastBudgetThatFitsIsTheLeastThatTrains) {
  const uint64_t seed = TestSeed(20261123) + static_cast<uint64_t>(GetParam());
  std::mt19937_64 random(seed);
  const gpt::TextData text = Text();
  int plans = 0;
  for (int draw = 0; plans < TestRounds(kPlans); ++draw) {
    ASSERT_LT(draw, 20 * kPlans);
    DrawnPlan drawn = DrawPlan(random);
    SCOPED_TRACE(testing::Message() << "seed " << seed << " draw " << draw);
    const Result<PlanSubject> subject =
        SubjectOf(drawn, folder_.path().string());
    ASSERT_THAT(subject, IsOk());
    const Result<std::optional<Bytes>> least =
        LeastDeviceBudget(*subject, drawn.flags);
    if (!least.ok()) {
      ASSERT_EQ(least.status().code(), ErrorCode::kInvalidArgument);
      continue;
    }
    if (!*least) continue;
    ++plans;

    drawn.flags.device_budget = *least;
    const Result<PlanOutcome> outcome = MakePlan(*subject, drawn.flags);
    ASSERT_THAT(outcome, IsOk());
    SCOPED_TRACE(WritePlan(PlanFileOf(*subject, *outcome)));
    gpt::TrainOptions train = Follows(drawn, *subject, *outcome);
    const std::string record = folder_.File("run.rec");
    Result<std::unique_ptr<FileRecorder>> recorder =
        FileRecorder::Create(record);
    ASSERT_THAT(recorder, IsOk());
    train.engine.recorder = recorder->get();
    ASSERT_THAT(gpt::Train(train, text, {}), IsOk());
    ASSERT_THAT((*recorder)->Close(), IsOk());
    ExpectTheSameBytes(*subject, *outcome, record);

    train.engine.recorder = nullptr;
    train.engine.device_budget -= Bytes(1);
    EXPECT_THAT(gpt::Train(train, text, {}), StatusIs(ErrorCode::kInfeasible));

    // Where nobody says what the step is, the answer is on the safe side.
    const Result<std::optional<Bytes>> derived =
        LeastDeviceBudget(WithoutStep(*subject), drawn.flags);
    ASSERT_THAT(derived, IsOk());
    if (derived->has_value()) {
      EXPECT_GE(**derived, **least);
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlanAgainstRunTest, testing::Range(0, kShards));

}  // namespace
}  // namespace castor
