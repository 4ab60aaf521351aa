// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Whether the optimizers are the ones they are named after.

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/optimizer_math.h"
#include "offload/kernels/optimizer_options.h"
#include "tests/offload/kernels/kernel_data.h"
#include "tests/offload/kernels/target_test.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using OptimizerFormulaTest = TargetTest;

CASTOR_INSTANTIATE_FOR_EACH_TARGET(OptimizerFormulaTest);

using Three = double[3][3];  // by step and parameter

constexpr Three kGrads = {
    {0.5, -0.125, 0.03125}, {-0.25, 0.375, 0.0078125}, {1, 0, -0.0625}};

bool IsNear(float value, double expected) {
  return std::abs(value - expected) <= 4e-7 * std::abs(expected) + 4e-9;
}

// Three steps from {1.5, -0.75, 2^-9}, against numbers worked out to fifty
// decimal digits from the documented formula. `moments` is null where there is
// no such moment.
void ExpectSteps(const OptimizerOptions& options, const Three& params,
                 const Three* moments, const Three* second_moments) {
  constexpr int64_t kCopies = 7;  // so that vectors are filled, and a rest
  constexpr int64_t kCount = 3 * kCopies;
  std::vector<float> p, m(kCount), v(kCount), g(kCount);
  for (int64_t i = 0; i < kCopies; ++i) {
    p.insert(p.end(), {1.5f, -0.75f, 0.001953125f});
  }
  std::vector<uint16_t> low(kCount);
  for (int t = 0; t < 3; ++t) {
    // Gradients scaled by 128, as loss scaling does.
    for (int64_t i = 0; i < kCount; ++i) {
      g[i] = static_cast<float>(kGrads[t][i % 3] * 128);
    }
    OptimizerStep({.grad = g.data(),
                   .param = p.data(),
                   .exp_avg = m.data(),
                   .exp_avg_sq = v.data(),
                   .low = low.data()},
                  kCount, ComputeOptimizerScalars(options, t + 1), 1.0f / 128);
    for (int64_t i = 0; i < kCount; ++i) {
      EXPECT_PRED2(IsNear, p[i], params[t][i % 3]);
      if (moments != nullptr) {
        EXPECT_PRED2(IsNear, m[i], (*moments)[t][i % 3]);
      }
      if (second_moments != nullptr) {
        // These are small.
        EXPECT_NEAR(v[i] / (*second_moments)[t][i % 3], 1, 4e-7);
      }
      EXPECT_EQ(low[i], FloatToBFloat16(p[i]));
    }
  }
}

// torch.optim.AdamW.
TEST_P(OptimizerFormulaTest, AdamWFollowsPyTorch) {
  const Three params = {{1.4885000002, -0.7392500008, -0.008048824925},
                        {1.48434812987, -0.743452648955, -0.0163467477894},
                        {1.47628266584, -0.746529297874, -0.0135900431606}};
  const Three exp_avgs = {{0.05, -0.0125, 0.003125},
                          {0.02, 0.02625, 0.00359375},
                          {0.118, 0.023625, -0.003015625}};
  const Three exp_avg_sqs = {
      {0.00025, 1.5625e-05, 9.765625e-07},
      {0.00031225, 0.000156234375, 1.03662109375e-06},
      {0.00131193775, 0.000156078140625, 4.94183447266e-06}};
  ExpectSteps({.lr = 0.01, .weight_decay = 0.1}, params, &exp_avgs,
              &exp_avg_sqs);
}

// torch.optim.Adam.
TEST_P(OptimizerFormulaTest, AdamFollowsPyTorch) {
  const Three params = {{1.49000000015, -0.7400000005, -0.00804687181988},
                        {1.48452207202, -0.742491905121, -0.0162062800904},
                        {1.47687444372, -0.743092260606, -0.0133264874174}};
  const Three exp_avgs = {
      {0.065, -0.02, 0.00314453125},
      {0.0484000000015, 0.012099999995, 0.0035308594068},
      {0.158405220722, 0.00346508094429, -0.00323428933478}};
  const Three exp_avg_sqs = {
      {0.0004225, 4.0e-5, 9.88807678223e-7},
      {0.000432278499997, 0.00013056099997, 1.03692831104e-6},
      {0.00175078869372, 0.000135943381262, 5.147346319e-6}};
  ExpectSteps({.kind = OptimizerKind::kAdam, .lr = 0.01, .weight_decay = 0.1},
              params, &exp_avgs, &exp_avg_sqs);
}

// torch.optim.SGD.
TEST_P(OptimizerFormulaTest, SgdFollowsPyTorch) {
  const Three params = {{1.4485, -0.73675, -0.001173828125},
                        {1.4720515, -0.77351325, -0.00195390429687},
                        {1.3705794485, -0.77273973675, 0.00429804960742}};
  ExpectSteps({.kind = OptimizerKind::kSgd, .lr = 0.1, .weight_decay = 0.01},
              params, nullptr, nullptr);
}

TEST_P(OptimizerFormulaTest, SgdWithDampenedMomentumFollowsPyTorch) {
  const Three params = {{1.4485, -0.73675, -0.001173828125},
                        {1.419813625, -0.7523974375, -0.00457314306641},
                        {1.31793102728, -0.765915833172, -0.00294159665637}};
  const Three buffers = {{0.515, -0.1325, 0.03126953125},
                         {0.28686375, 0.156474375, 0.0339931494141},
                         {1.01882597719, 0.135183956719, -0.0163154641003}};
  ExpectSteps({.kind = OptimizerKind::kSgd,
               .lr = 0.1,
               .weight_decay = 0.01,
               .momentum = 0.9,
               .dampening = 0.25},
              params, &buffers, nullptr);
}

TEST_P(OptimizerFormulaTest, SgdWithNesterovsMomentumFollowsPyTorch) {
  const Three params = {{1.40215, -0.724825, -0.0039880859375},
                        {1.405270915, -0.7839653325, -0.00799771560547},
                        {1.19417165876, -0.802604440118, 0.000983349075666}};
  const Three buffers = {{0.515, -0.1325, 0.03126953125},
                         {0.2275215, 0.24850175, 0.0359151972656},
                         {1.21882205915, 0.215811921675, -0.030256299617}};
  ExpectSteps({.kind = OptimizerKind::kSgd,
               .lr = 0.1,
               .weight_decay = 0.01,
               .momentum = 0.9,
               .nesterov = true},
              params, &buffers, nullptr);
}

// Chen et al. 2023, Program 1, with the decay apart, as its authors have it.
TEST_P(OptimizerFormulaTest, LionFollowsItsAuthors) {
  const Three params = {{1.4885, -0.73925, -0.008048828125},
                        {1.4970115, -0.74851075, -0.0180407792969},
                        {1.4855144885, -0.75776223925, -0.00802273851758}};
  const Three exp_avgs = {{0.005, -0.00125, 0.0003125},
                          {0.00245, 0.0025125, 0.0003875},
                          {0.0124255, 0.002487375, -0.000241375}};
  OptimizerOptions options = DefaultOptimizerOptions(OptimizerKind::kLion);
  options.lr = 0.01;
  options.weight_decay = 0.1;
  ExpectSteps(options, params, &exp_avgs, nullptr);
}

TEST_P(OptimizerFormulaTest, AdamWStaysWithinRoundingErrorOfTheFormula) {
  std::mt19937_64 random = SeededGenerator();
  std::normal_distribution<float> normal;
  constexpr int64_t kCount = 1000;
  constexpr long double kUnit = 0x1p-24L;  // of one rounding
  for (int64_t step : {1, 2, 10, 1000, 1000000}) {
    const OptimizerOptions options;
    const OptimizerScalars scalars = ComputeOptimizerScalars(options, step);
    const float factor = 0.37f;
    std::vector<float> g(kCount), p(kCount), m(kCount), v(kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      g[i] = normal(random) * 0.01f;
      p[i] = normal(random);
      m[i] = normal(random) * 0.01f;
      v[i] = std::abs(normal(random)) * 1e-4f;
    }
    std::vector<float> new_p = p, new_m = m, new_v = v;
    OptimizerStep({.grad = g.data(),
                   .param = new_p.data(),
                   .exp_avg = new_m.data(),
                   .exp_avg_sq = new_v.data()},
                  kCount, scalars, factor);
    const long double b1 = options.beta1;
    const long double b2 = options.beta2;
    const long double bias1 = 1 - std::pow(b1, step);
    const long double bias2 = 1 - std::pow(b2, step);
    for (int64_t i = 0; i < kCount; ++i) {
      const long double grad = static_cast<long double>(g[i]) * factor;
      const long double exp_avg = m[i] * b1 + grad * (1 - b1);
      const long double exp_avg_sq = v[i] * b2 + grad * grad * (1 - b2);
      const long double per_m =
          options.lr / bias1 / (std::sqrt(exp_avg_sq / bias2) + options.eps);
      const long double param =
          p[i] * (1 - options.lr * options.weight_decay) - per_m * exp_avg;
      // Roundings on the way to each, counted, of the operands' sizes: m may
      // cancel.
      const long double m_size =
          std::abs(m[i] * b1) + std::abs(grad * (1 - b1));
      EXPECT_LE(std::abs(new_m[i] - exp_avg), 4 * kUnit * m_size);
      EXPECT_LE(std::abs(new_v[i] - exp_avg_sq), 7 * kUnit * exp_avg_sq);
      EXPECT_LE(std::abs(new_p[i] - param),
                kUnit * (4 * std::abs(p[i]) + 17 * per_m * m_size));
    }
  }
}

// The corners of each formula; optimizer_formula_test.cc has the numbers.

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(AdamUpdateTest, DividesByAtLeastEps) {
  OptimizerScalars s;
  s.grad_weight1 = 1;
  s.step_size = 1;
  s.eps = 0.5f;
  float p = 0, m = 0, v = 0;
  AdamUpdate(s, 2, &p, &m, &v);
  EXPECT_EQ(p, -4);
}

TEST(AdamUpdateTest, NoDecayIsNoMultiplicationByZero) {
  OptimizerScalars s;
  s.kind = OptimizerKind::kAdam;
  s.grad_weight1 = s.grad_weight2 = 1;
  float p = kInfinity, m = 0, v = 0;
  AdamUpdate(s, 3, &p, &m, &v);
  EXPECT_EQ(m, 3);
  EXPECT_EQ(v, 9);
}

TEST(MomentumUpdateTest, StartsFromTheFirstGradient) {
  OptimizerScalars s;
  s.kind = OptimizerKind::kSgd;
  s.beta1 = 0.75f;
  s.grad_weight1 = 1;
  s.step_size = 0.5f;
  float p = 1, m = 0;
  MomentumUpdate(s, 4, &p, &m);
  EXPECT_EQ(m, 4);
  EXPECT_EQ(p, -1);
  s.nesterov = true;
  p = 1;
  m = 0;
  MomentumUpdate(s, 4, &p, &m);
  EXPECT_EQ(p, 1 - 0.5f * (4 + 4 * 0.75f));
}

TEST(LionUpdateTest, StepsByTheSignOnly) {
  OptimizerScalars s;
  s.kind = OptimizerKind::kLion;
  s.grad_weight1 = 1;
  s.grad_weight2 = 1;
  s.step_size = 0.25f;
  const auto stepped = [&](float g) {
    float p = 1, m = 0;
    LionUpdate(s, g, &p, &m);
    EXPECT_EQ(std::isnan(m), std::isnan(g));
    return p;
  };
  for (float size :
       {std::numeric_limits<float>::denorm_min(), 1.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(stepped(size), 0.75f);
    EXPECT_EQ(stepped(-size), 1.25f);
  }
  EXPECT_EQ(stepped(0.0f), 1);
  EXPECT_EQ(stepped(-0.0f), 1);
  EXPECT_TRUE(std::isnan(stepped(std::nanf(""))));
  float p = -0.0f, m = -0.0f;
  LionUpdate(s, -0.0f, &p, &m);
  EXPECT_TRUE(std::signbit(p)) << "no step changes no bit";
}

constexpr OptimizerKind kKinds[] = {OptimizerKind::kAdam, OptimizerKind::kAdamW,
                                    OptimizerKind::kSgd, OptimizerKind::kLion};

TEST(OptimizerOptionsTest, NamesReadBack) {
  for (OptimizerKind kind : kKinds) {
    EXPECT_EQ(ParseOptimizer(OptimizerName(kind)), kind);
  }
  EXPECT_EQ(OptimizerName(OptimizerKind::kAdamW), "adamw");
  EXPECT_EQ(ParseOptimizer("AdamW"), std::nullopt);
  EXPECT_EQ(ParseOptimizer(""), std::nullopt);
}

TEST(OptimizerOptionsTest, DefaultsAreThoseOfPyTorchAndOfLionsAuthors) {
  for (OptimizerKind kind : kKinds) {
    const OptimizerOptions options = DefaultOptimizerOptions(kind);
    EXPECT_EQ(options.kind, kind);
    EXPECT_THAT(ValidateOptimizerOptions(options), IsOk());
    EXPECT_EQ(options.weight_decay, kind == OptimizerKind::kAdamW ? 0.01 : 0);
    EXPECT_EQ(options.lr, kind == OptimizerKind::kLion ? 1e-4 : 1e-3);
    EXPECT_EQ(options.beta2, kind == OptimizerKind::kLion ? 0.99 : 0.999);
    EXPECT_EQ(options.momentum, 0);
  }
}

TEST(OptimizerOptionsTest, MomentsAreWhatTheKindKeeps) {
  EXPECT_EQ(StateNamesOf({.kind = OptimizerKind::kAdamW}), StateNames());
  EXPECT_EQ(StateNamesOf({.kind = OptimizerKind::kSgd, .momentum = 0.9}),
            StateNames({"momentum_buffer"}));
  EXPECT_EQ(StateNamesOf({.kind = OptimizerKind::kLion}),
            StateNames({"exp_avg"}));
  EXPECT_EQ(MomentsOf({.kind = OptimizerKind::kAdam}), 2);
  EXPECT_EQ(MomentsOf({.kind = OptimizerKind::kAdamW}), 2);
  EXPECT_EQ(MomentsOf({.kind = OptimizerKind::kSgd}), 0);
  EXPECT_EQ(MomentsOf({.kind = OptimizerKind::kSgd, .momentum = 0.9}), 1);
  EXPECT_EQ(MomentsOf({.kind = OptimizerKind::kLion}), 1);
}

void ExpectRefused(OptimizerKind kind,
                   const std::function<void(OptimizerOptions&)>& change,
                   const std::string& what) {
  OptimizerOptions options = DefaultOptimizerOptions(kind);
  change(options);
  EXPECT_THAT(ValidateOptimizerOptions(options),
              StatusIs(ErrorCode::kInvalidArgument, Says(what)));
}

TEST(OptimizerOptionsTest, RefusesNumbersWithoutMeaning) {
  for (OptimizerKind kind : kKinds) {
    const std::string name(OptimizerName(kind));
    ExpectRefused(
        kind, [](auto& o) { o.weight_decay = -0.1; }, name);
    ExpectRefused(
        kind, [](auto& o) { o.weight_decay = NAN; }, "weight decay");
    ExpectRefused(
        kind, [](auto& o) { o.moment_dtype = DType::kF16; }, "F16");
    if (kind == OptimizerKind::kSgd) continue;
    ExpectRefused(
        kind, [](auto& o) { o.beta1 = 1; }, "betas");
    ExpectRefused(
        kind, [](auto& o) { o.beta2 = -0.5; }, "-0.5");
  }
  ExpectRefused(
      OptimizerKind::kAdam, [](auto& o) { o.eps = INFINITY; }, "eps");
  const OptimizerKind sgd = OptimizerKind::kSgd;
  ExpectRefused(
      sgd, [](auto& o) { o.momentum = -1; }, "momentum");
  ExpectRefused(
      sgd, [](auto& o) { o.dampening = NAN; }, "dampening");
  ExpectRefused(
      sgd, [](auto& o) { o.nesterov = true; }, "Nesterov");
}

TEST(OptimizerOptionsTest, OnlyWhatTheKindUsesIsLookedAt) {
  OptimizerOptions options = DefaultOptimizerOptions(OptimizerKind::kSgd);
  options.beta1 = 7;
  EXPECT_THAT(ValidateOptimizerOptions(options), IsOk());
  options = DefaultOptimizerOptions(OptimizerKind::kLion);
  options.eps = -1;
  options.momentum = -1;
  EXPECT_THAT(ValidateOptimizerOptions(options), IsOk());
}

}  // namespace
}  // namespace castor
