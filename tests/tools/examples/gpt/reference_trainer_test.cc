// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/reference_trainer.h"

#include <atomic>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor::gpt {
namespace {

TextData Verse() {
  const std::string line =
      "Two households, both alike in dignity, in fair Verona, where we lay our "
      "scene, from ancient grudge break to new mutiny. ";
  std::string text;
  for (int i = 0; i < 20; ++i) text += line;
  return TextData(std::vector<uint8_t>(text.begin(), text.end()));
}

TrainOptions Small() {
  TrainOptions options;
  options.model = {
      .vocab = 256, .context = 32, .layers = 2, .heads = 2, .embd = 32};
  options.batch = 4;
  options.steps = 30;
  options.lr = 3e-3;
  return options;
}

TEST(ReferenceTrainerTest, LearnsAText) {
  const auto outcome = TrainReference(Small(), Verse(), {});
  ASSERT_THAT(outcome, IsOk());
  ASSERT_EQ(outcome->steps.size(), 30u);
  EXPECT_NEAR(outcome->steps.front().loss, 5.545, 0.1);
  EXPECT_LT(outcome->steps.back().loss, 3.2);
  EXPECT_TRUE(outcome->ranks.empty());
}

TEST(ReferenceTrainerTest, LearnsInBf16) {
  TrainOptions options = Small();
  options.dtype = DType::kBF16;
  const auto outcome = TrainReference(options, Verse(), {});
  ASSERT_THAT(outcome, IsOk());
  EXPECT_LT(outcome->steps.back().loss, 3.2);
}

TEST(ReferenceTrainerTest, TheSameRunGivesTheSameBits) {
  TrainOptions options = Small();
  options.steps = 4;
  options.accumulate = 2;
  options.digest_step = 3;
  const auto first = TrainReference(options, Verse(), {});
  const auto second = TrainReference(options, Verse(), {});
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(first->final_digest, second->final_digest);
  EXPECT_EQ(first->digests, second->digests);
  ASSERT_EQ(first->digests.size(), 1u);
  EXPECT_NE(first->digests.at(3), first->final_digest);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(first->steps[i].loss, second->steps[i].loss);
    EXPECT_EQ(first->steps[i].grad_norm, second->steps[i].grad_norm);
  }
  options.steps = 3;
  const auto shorter = TrainReference(options, Verse(), {});
  ASSERT_THAT(shorter, IsOk());
  EXPECT_EQ(shorter->final_digest, first->digests.at(3));
  options.seed = 2;
  const auto other = TrainReference(options, Verse(), {});
  ASSERT_THAT(other, IsOk());
  EXPECT_NE(other->final_digest, shorter->final_digest);
}

TEST(ReferenceTrainerTest, StopsWhenItIsTold) {
  std::atomic<bool> stop = false;
  TrainHooks hooks;
  hooks.stop = &stop;
  hooks.on_step = [&](const StepReport& report) { stop = report.step == 2; };
  const auto outcome = TrainReference(Small(), Verse(), hooks);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_TRUE(outcome->stopped_early);
  EXPECT_EQ(outcome->steps.size(), 2u);
}

TEST(ReferenceTrainerTest, RefusesMoreThanOneRank) {
  TrainOptions options = Small();
  options.ranks = 2;
  EXPECT_THAT(TrainReference(options, Verse(), {}),
              StatusIs(ErrorCode::kInvalidArgument));
}

TEST(WeightDigestTest, DependsOnEveryBitAndItsPlace) {
  std::vector<float> values(130, 1.0f);
  const uint64_t digest = WeightDigest(ParamId(3), values);
  EXPECT_EQ(WeightDigest(ParamId(3), values), digest);
  EXPECT_NE(WeightDigest(ParamId(4), values), digest);
  for (size_t i : {0u, 63u, 64u, 129u}) {
    std::vector<float> changed = values;
    changed[i] = 1.0000001f;
    EXPECT_NE(WeightDigest(ParamId(3), changed), digest) << i;
  }
  std::vector<float> first = values;
  std::vector<float> second = values;
  first[0] = 2;
  second[64] = 2;  // the same block of values at another place
  EXPECT_NE(WeightDigest(ParamId(3), first), WeightDigest(ParamId(3), second));
  values.pop_back();
  EXPECT_NE(WeightDigest(ParamId(3), values), digest);
}

TEST(WeightDigestTest, OfNothingIsZero) {
  EXPECT_EQ(WeightDigest(ParamId(3), {}), 0u);
}

}  // namespace
}  // namespace castor::gpt
