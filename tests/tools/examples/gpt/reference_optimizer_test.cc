// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/reference_optimizer.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/optimizer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor::gpt {
namespace {

const GptConfig kConfig = {
    .vocab = 5, .context = 3, .layers = 1, .heads = 1, .embd = 4};

void FillGradients(PlainParams<float>& params, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, 1e-2f);
  for (int32_t i = 0; i < params.size(); ++i) {
    float* const grad = *params.OpenGrad(ParamId(i));
    for (size_t j = 0; j < params.master(ParamId(i)).size(); ++j) {
      grad[j] += normal(random);
    }
    ASSERT_THAT(params.CloseGrad(ParamId(i), GradUse::kComplete), IsOk());
  }
}

TEST(ReferenceOptimizerTest, EqualsCastorsKernelBitByBit) {
  std::mt19937_64 random(TestSeed(12));
  const ReferenceAdamW options = {
      .beta1 = 0.85, .beta2 = 0.98, .eps = 1e-7, .weight_decay = 0.1};
  PlainParams<float> params(kConfig, Precision::kFull, 1);
  ReferenceOptimizer optimizer(options);
  const ParamId id(0);
  std::vector<float> weight(params.master(id).begin(), params.master(id).end());
  std::vector<float> first(weight.size());
  std::vector<float> second(weight.size());
  for (int64_t step = 1; step <= 5; ++step) {
    const double lr = 1e-2 / static_cast<double>(step);
    params.BeginMicroBatch(true);
    FillGradients(params, random);
    params.EndMicroBatch();
    EXPECT_TRUE(optimizer.Step(params, lr, /*micro_batches=*/3).applied);
    OptimizerStepScalar({.grad = params.gradient(id).data(),
                         .param = weight.data(),
                         .exp_avg = first.data(),
                         .exp_avg_sq = second.data()},
                        static_cast<int64_t>(weight.size()),
                        ComputeOptimizerScalars({.lr = lr,
                                                 .beta1 = 0.85,
                                                 .beta2 = 0.98,
                                                 .eps = 1e-7,
                                                 .weight_decay = 0.1},
                                                step),
                        static_cast<float>(1.0 / 3));
    ASSERT_EQ(
        std::vector<float>(params.master(id).begin(), params.master(id).end()),
        weight);
  }
}

TEST(ReferenceOptimizerTest, ClipsTheAveragedGradient) {
  PlainParams<float> params(kConfig, Precision::kFull, 1);
  ReferenceOptimizer optimizer({.clip_norm = 0.5});
  params.BeginMicroBatch(true);
  (*params.OpenGrad(ParamId(0)))[0] = 6;
  (*params.OpenGrad(ParamId(1)))[0] = 8;
  const float before = params.master(ParamId(0))[1];
  const auto outcome = optimizer.Step(params, 0.1, /*micro_batches=*/2);
  EXPECT_EQ(outcome.grad_norm, 5);
  EXPECT_TRUE(outcome.applied);
  // Where the gradient is zero, decay is all that happens.
  EXPECT_EQ(params.master(ParamId(0))[1],
            before * static_cast<float>(1 - 0.1 * 0.01));
}

TEST(ReferenceOptimizerTest, LeavesAllAsItWasWhenAGradientIsNotFinite) {
  PlainParams<float> params(kConfig, Precision::kFull, 1);
  ReferenceOptimizer optimizer({.clip_norm = 1});
  params.BeginMicroBatch(true);
  (*params.OpenGrad(ParamId(0)))[0] = NAN;
  const float before = params.master(ParamId(2))[0];
  EXPECT_FALSE(optimizer.Step(params, 0.1, 1).applied);
  EXPECT_EQ(params.master(ParamId(2))[0], before);
}

double Reference(const std::vector<std::vector<float>>& gradients) {
  LongSum sum;
  for (const auto& gradient : gradients) sum.AddSquares(gradient);
  return sum.Total();
}

double Castor(const std::vector<std::vector<float>>& gradients) {
  ExactSum sum;
  for (const auto& gradient : gradients) {
    AddSquares(gradient.data(), DType::kF32,
               static_cast<int64_t>(gradient.size()), &sum);
  }
  return sum.Total();
}

TEST(ReferenceNormTest, OfNothingIsZero) {
  EXPECT_EQ(Reference({}), 0);
  EXPECT_EQ(Reference({{}, {0, 0}}), 0);
}

TEST(ReferenceNormTest, IsExactWhereFloatsAreNot) {
  // 2^100 + 2^-60 - the second is far below the first's last place - twice the
  // half unit that a rounding after each block would lose.
  const float big = std::ldexp(1.0f, 50);
  const float half_unit = std::ldexp(1.0f, 23);
  EXPECT_EQ(Reference({{big}, {half_unit}, {half_unit}, {half_unit}}),
            std::ldexp(1.0, 100) + std::ldexp(1.0, 48));
}

TEST(ReferenceNormTest, SaysSoWhenAGradientIsNotFinite) {
  EXPECT_EQ(Reference({{1, std::numeric_limits<float>::infinity()}}),
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(Reference({{1}, {std::numeric_limits<float>::quiet_NaN()}}),
            std::numeric_limits<double>::infinity());
}

TEST(ReferenceNormTest, EqualsCastorsBitByBit) {
  std::mt19937_64 random(TestSeed(11));
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::vector<float>> gradients(random() % 4 + 1);
    for (auto& gradient : gradients) {
      gradient.resize(random() % 300);
      // All finite floats, denormals too; sums of squares may not overflow.
      for (float& g : gradient) {
        g = std::bit_cast<float>(static_cast<uint32_t>(random()));
        if (!std::isfinite(g)) g = 1;
      }
    }
    ASSERT_EQ(Reference(gradients), Castor(gradients)) << "round " << round;
  }
}

}  // namespace
}  // namespace castor::gpt
