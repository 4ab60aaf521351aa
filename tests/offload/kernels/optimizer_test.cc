// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>

#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/block_codes.h"
#include "tests/offload/kernels/kernel_data.h"
#include "tests/offload/kernels/optimizer_arrays.h"
#include "tests/offload/kernels/target_test.h"
#include "tests/support/test_rounds.h"

namespace castor {
namespace {

// Any numbers that the optimizer has a meaning for.
OptimizerScalars RandomScalars(std::mt19937_64& random,
                               OptimizerOptions options) {
  std::uniform_real_distribution<double> unit(0, 1);
  options.lr = unit(random);
  options.beta1 = unit(random);
  options.beta2 = unit(random);
  options.eps = std::ldexp(1.0, -static_cast<int>(random() % 140));
  if (options.weight_decay > 0) options.weight_decay = unit(random);
  if (options.momentum > 0) options.momentum = unit(random);
  return ComputeOptimizerScalars(options,
                                 1 + static_cast<int64_t>(random() % 99));
}

MomentRounding RandomRounding(std::mt19937_64& random) {
  MomentRounding rounding;
  rounding.stochastic = random() % 4 != 0;
  rounding.key = MakeStochasticKey(random(), random() % 9, random() % 9);
  // Now and then where the lower 32 bits of the index wrap around.
  rounding.first_element = (int64_t{1} << 32) * (random() % 3) +
                           static_cast<int64_t>(random() % 99) - 50;
  rounding.first_element = std::max<int64_t>(rounding.first_element, 0);
  return rounding;
}

std::string Name(const OptimizerTypes& types) {
  std::string name(DTypeName(types.grad));
  name += " gradients, moments ";
  name += DTypeName(types.moment);
  name += ", written back ";
  return name += DTypeName(types.low);
}

using OptimizerTest = TargetTest;
CASTOR_INSTANTIATE_FOR_EACH_TARGET(OptimizerTest);

void ExpectBitsOfTheScalarForm(std::mt19937_64& random,
                               const OptimizerOptions& options,
                               const OptimizerTypes& types, int64_t count,
                               int64_t offset) {
  OptimizerArrays vector(random, types, count, offset);
  OptimizerArrays scalar = vector.AtOffset(0);
  const OptimizerScalars scalars = RandomScalars(random, options);
  const MomentRounding rounding = RandomRounding(random);
  const float factor = std::ldexp(1.0f, static_cast<int>(random() % 40) - 20);
  OptimizerStepScalar(scalar.Buffers(rounding), count, scalars, factor);
  {
    const FlushingMode flushing;
    OptimizerStep(vector.Buffers(rounding), count, scalars, factor);
  }
  ASSERT_EQ(vector.Bits(), scalar.Bits())
      << OptimizerName(options.kind) << " " << Name(types) << " " << count
      << " " << offset;
}

TEST_P(OptimizerTest, GivesTheBitsOfTheScalarFormForAllKindsAndTypes) {
  std::mt19937_64 random = SeededGenerator();
  int combination = 0;
  for (const OptimizerOptions& options : OptimizersToTest()) {
    for (const OptimizerTypes& types : AllOptimizerTypes()) {
      for (int64_t count : {0, 1, 7, 8, 15, 16, 17, 33, 64, 5031}) {
        if (combination++ % TestStride() != 0) continue;
        ExpectBitsOfTheScalarForm(random, options, types, count,
                                  static_cast<int64_t>(random() % 5));
      }
    }
  }
}

TEST_P(OptimizerTest, GivesTheBitsOfTheScalarFormAtEveryLengthAndOffset) {
  std::mt19937_64 random = SeededGenerator();
  const OptimizerOptions options;
  for (int64_t count = 0; count < 70; ++count) {
    for (int64_t offset = 0; offset < 5; ++offset) {
      const OptimizerTypes full = {DType::kF32, DType::kF32, DType::kBF16};
      ExpectBitsOfTheScalarForm(random, options, full, count, offset);
      const OptimizerTypes low = {DType::kBF16, DType::kBF16, DType::kBF16};
      ExpectBitsOfTheScalarForm(random, options, low, count, offset);
      const OptimizerTypes blocks = {DType::kBF16, DType::kBlocks8,
                                     DType::kBF16};
      ExpectBitsOfTheScalarForm(random, options, blocks, 8 * count, offset);
    }
  }
}

TEST_P(OptimizerTest, AnySplitGivesTheSameBits) {
  std::mt19937_64 random = SeededGenerator();
  constexpr int64_t kCount = 150;
  for (const OptimizerOptions& options : OptimizersToTest()) {
    const OptimizerTypes types = {DType::kBF16, DType::kBF16, DType::kF16};
    const OptimizerArrays start(random, types, kCount, 0);
    const OptimizerScalars scalars = RandomScalars(random, options);
    MomentRounding rounding = RandomRounding(random);
    rounding.stochastic = true;
    OptimizerArrays whole = start.AtOffset(0);
    OptimizerStep(whole.Buffers(rounding), kCount, scalars, 0.5f);
    for (int64_t cut = 0; cut <= kCount; cut += TestStride()) {
      OptimizerArrays split = start.AtOffset(0);
      const OptimizerBuffers buffers = split.Buffers(rounding);
      OptimizerStep(SkipElements(buffers, cut), kCount - cut, scalars, 0.5f);
      OptimizerStep(buffers, cut, scalars, 0.5f);
      ASSERT_EQ(split.Bits(), whole.Bits()) << cut;
    }
  }
}

TEST_P(OptimizerTest, ASplitBetweenBlocksGivesTheSameBits) {
  std::mt19937_64 random = SeededGenerator();
  constexpr int64_t kCount = 5 * kBlockValues + 77;
  for (const OptimizerOptions& options : OptimizersToTest()) {
    const OptimizerTypes types = {DType::kBF16, DType::kBlocks8, DType::kF16};
    const OptimizerArrays start(random, types, kCount, 0);
    const OptimizerScalars scalars = RandomScalars(random, options);
    const MomentRounding rounding = RandomRounding(random);
    OptimizerArrays whole = start.AtOffset(0);
    OptimizerStep(whole.Buffers(rounding), kCount, scalars, 0.5f);
    for (int64_t cut = 0; cut <= kCount; cut += kBlockValues) {
      OptimizerArrays split = start.AtOffset(0);
      const OptimizerBuffers buffers = split.Buffers(rounding);
      OptimizerStep(SkipElements(buffers, cut), kCount - cut, scalars, 0.5f);
      OptimizerStep(buffers, cut, scalars, 0.5f);
      ASSERT_EQ(split.Bits(), whole.Bits()) << cut;
    }
  }
}

// Every fusion of a multiply with an add keeps a 2^-46 that two roundings drop.
constexpr float kOneUp = 1 + 0x1p-23f;  // its square rounds to 1 + 2^-22
constexpr float kTwoUp = 1 + 0x1p-22f;

// Parameter, exp_avg and exp_avg_sq after one step of elements that are alike.
std::array<float, 3> StepOfEqualElements(float grad, float param, float exp_avg,
                                         float exp_avg_sq,
                                         const OptimizerScalars& scalars) {
  constexpr int64_t kCount = 37;
  const std::vector<float> grads(kCount, grad);
  std::vector<float> p(kCount, param);
  std::vector<float> m(kCount, exp_avg);
  std::vector<float> v(kCount, exp_avg_sq);
  OptimizerStep({.grad = grads.data(),
                 .param = p.data(),
                 .exp_avg = m.data(),
                 .exp_avg_sq = v.data()},
                kCount, scalars, 1.0f);
  for (int64_t i = 1; i < kCount; ++i) {
    EXPECT_EQ(std::tuple(p[i], m[i], v[i]), std::tuple(p[0], m[0], v[0]));
  }
  return {p[0], m[0], v[0]};
}

TEST_P(OptimizerTest, NewValuesMayGoElsewhereAndTheOldOnesStay) {
  std::mt19937_64 random = SeededGenerator();
  constexpr int64_t kCount = 3 * kBlockValues + 45;
  constexpr int64_t kCut = kBlockValues;
  for (const OptimizerOptions& options : OptimizersToTest()) {
    for (const OptimizerTypes& types : AllOptimizerTypes()) {
      OptimizerArrays old = OptimizerArrays(random, types, kCount, 1);
      const auto before = old.Bits();
      OptimizerArrays inside = old.AtOffset(0);
      const OptimizerScalars scalars = RandomScalars(random, options);
      const MomentRounding rounding = RandomRounding(random);
      OptimizerStep(inside.Buffers(rounding), kCount, scalars, 0.5f);
      // Aligned as stores past the caches are, and not.
      for (const int64_t offset : {0, 2}) {
        OptimizerArrays aside = old.AtOffset(offset);
        OptimizerBuffers buffers = old.Buffers(rounding);
        const OptimizerBuffers to = aside.Buffers();
        buffers.new_param = to.param;
        buffers.new_exp_avg = to.exp_avg;
        buffers.new_exp_avg_sq = to.exp_avg_sq;
        buffers.low = to.low;
        OptimizerStep(SkipElements(buffers, kCut), kCount - kCut, scalars,
                      0.5f);
        OptimizerStep(buffers, kCut, scalars, 0.5f);
        ASSERT_EQ(aside.Bits(), inside.Bits()) << OptimizerName(options.kind);
        ASSERT_EQ(old.Bits(), before) << Name(types);
      }
    }
  }
}

TEST_P(OptimizerTest, AdamRoundsEveryProductBeforeItIsAdded) {
  OptimizerScalars s = {.eps = 1};
  s.beta1 = kOneUp;
  s.grad_weight1 = -1;
  EXPECT_EQ(StepOfEqualElements(kTwoUp, 0, kOneUp, 0, s)[1], 0);
  s.beta1 = -1;
  s.grad_weight1 = kOneUp;
  EXPECT_EQ(StepOfEqualElements(kOneUp, 0, kTwoUp, 0, s)[1], 0);

  s = {.eps = 1};
  s.beta2 = kOneUp;
  s.grad_weight2 = -kTwoUp;
  EXPECT_EQ(StepOfEqualElements(1, 0, 0, kOneUp, s)[2], 0);
  s.beta2 = -1;
  s.grad_weight2 = 1;
  EXPECT_EQ(StepOfEqualElements(kOneUp, 0, 0, kTwoUp, s)[2], 0);

  s = {.eps = 1};
  s.decay = kOneUp;
  s.beta1 = 1;
  s.step_size = 1;
  EXPECT_EQ(StepOfEqualElements(0, kOneUp, kTwoUp, 0, s)[0], 0);
  s.decay = 1;
  s.step_size = kOneUp;
  EXPECT_EQ(StepOfEqualElements(0, kTwoUp, kOneUp, 0, s)[0], 0);

  s = {.kind = OptimizerKind::kAdam, .l2 = kOneUp, .eps = 1};
  s.grad_weight1 = 1;
  EXPECT_EQ(StepOfEqualElements(-kTwoUp, kOneUp, 0, 0, s)[1], 0);
}

TEST_P(OptimizerTest, SgdRoundsEveryProductBeforeItIsAdded) {
  OptimizerScalars s = {.kind = OptimizerKind::kSgd};
  s.step_size = kOneUp;
  EXPECT_EQ(StepOfEqualElements(kOneUp, kTwoUp, 0, 0, s)[0], 0);
  s.step_size = 1;
  s.l2 = kOneUp;  // the gradient becomes zero: the parameter stays
  EXPECT_EQ(StepOfEqualElements(-kTwoUp, kOneUp, 0, 0, s)[0], kOneUp);

  s = {.kind = OptimizerKind::kSgd, .beta1 = kOneUp};
  s.grad_weight1 = -1;
  EXPECT_EQ(StepOfEqualElements(kTwoUp, 0, kOneUp, 0, s)[1], 0);
  s.grad_weight1 = 0;
  s.step_size = kOneUp;
  s.beta1 = 1;
  EXPECT_EQ(StepOfEqualElements(0, kTwoUp, kOneUp, 0, s)[0], 0);
  s.nesterov = true;
  s.beta1 = kOneUp;
  s.step_size = 1;  // m = 1 * kOneUp, then g + m * kOneUp = 0
  EXPECT_EQ(StepOfEqualElements(-kTwoUp, 5, 1, 0, s)[0], 5);
}

TEST_P(OptimizerTest, LionRoundsEveryProductBeforeItIsAdded) {
  OptimizerScalars s = {.kind = OptimizerKind::kLion, .step_size = 1};
  s.beta1 = kOneUp;
  s.grad_weight1 = -1;  // the blend is zero, and has no sign
  EXPECT_EQ(StepOfEqualElements(kTwoUp, 7, kOneUp, 0, s)[0], 7);
  s.beta2 = kOneUp;
  s.grad_weight2 = -1;
  EXPECT_EQ(StepOfEqualElements(kTwoUp, 7, kOneUp, 0, s)[1], 0);
  s = {.kind = OptimizerKind::kLion, .decay = kOneUp, .step_size = kTwoUp};
  s.grad_weight1 = 1;
  EXPECT_EQ(StepOfEqualElements(1, kOneUp, 0, 0, s)[0], 0);
}

TEST_P(OptimizerTest, PaddingStaysZero) {
  constexpr int64_t kCount = 45;
  for (const OptimizerOptions& options : OptimizersToTest()) {
    for (DType moment : {DType::kF32, DType::kBF16, DType::kBlocks8}) {
      const std::vector<float> zero(kCount);
      std::vector<float> p(kCount), m(kCount), v(kCount);
      std::vector<uint16_t> low(kCount, 1);
      OptimizerBuffers buffers = {.grad = zero.data(),
                                  .param = p.data(),
                                  .exp_avg = m.data(),
                                  .exp_avg_sq = v.data(),
                                  .moment_dtype = moment,
                                  .low = low.data()};
      for (int64_t step = 1; step < 4; ++step) {
        buffers.rounding = MakeMomentRounding(options, 3, step, 0);
        OptimizerStep(buffers, kCount, ComputeOptimizerScalars(options, step),
                      0.1f);
      }
      const auto all_bits_zero = [](const auto& values) {
        const auto* bytes = reinterpret_cast<const char*>(values.data());
        return std::all_of(bytes, bytes + values.size() * sizeof(values[0]),
                           [](char byte) { return byte == 0; });
      };
      EXPECT_TRUE(all_bits_zero(p));
      EXPECT_TRUE(all_bits_zero(m));
      EXPECT_TRUE(all_bits_zero(v));
      EXPECT_TRUE(all_bits_zero(low));
    }
  }
}

// Moments in bf16 lose what is below half of their last place; by chance they
// keep it on average.
TEST_P(OptimizerTest, MomentsRoundedByChanceGatherWhatIsTooSmallToRound) {
  constexpr int64_t kCount = 512;
  OptimizerOptions options = DefaultOptimizerOptions(OptimizerKind::kSgd);
  options.momentum = 1;
  options.lr = 0;
  for (bool stochastic : {false, true}) {
    options.stochastic_rounding = stochastic;
    const std::vector<float> grad(kCount, 0x1p-12f);
    std::vector<float> param(kCount);
    std::vector<uint16_t> moments(kCount, FloatToBFloat16(1));
    for (int64_t step = 1; step <= 256; ++step) {
      OptimizerStep({.grad = grad.data(),
                     .param = param.data(),
                     .exp_avg = moments.data(),
                     .moment_dtype = DType::kBF16,
                     .rounding = MakeMomentRounding(options, 0, step, 0)},
                    kCount, ComputeOptimizerScalars(options, step), 1);
    }
    double mean = 0;
    for (uint16_t moment : moments) mean += BFloat16ToFloat(moment) / kCount;
    if (stochastic) {
      // 1 + 256 * 2^-12; the mean's standard deviation is 0.001.
      EXPECT_NEAR(mean, 1.0625, 0.004);
    } else {
      EXPECT_EQ(mean, 1);
    }
  }
}

TEST(OptimizerScalarsTest, ComputesBiasCorrectionsInDouble) {
  const OptimizerOptions options = {.lr = 3e-4, .weight_decay = 0.1};
  const OptimizerScalars first = ComputeOptimizerScalars(options, 1);
  EXPECT_EQ(first.decay, static_cast<float>(1 - 3e-4 * 0.1));
  EXPECT_EQ(first.l2, 0);
  EXPECT_EQ(first.beta1, 0.9f);
  EXPECT_EQ(first.grad_weight1, 0.1f);
  EXPECT_EQ(first.beta2, 0.999f);
  // In fp32, 1 - 0.999 would be 2e-5 off.
  EXPECT_EQ(first.grad_weight2, 0.001f);
  EXPECT_FLOAT_EQ(first.step_size, 3e-3f);
  EXPECT_FLOAT_EQ(first.sqrt_bias2, 0.0316227766f);
  EXPECT_EQ(first.eps, 1e-8f);
  const OptimizerScalars late = ComputeOptimizerScalars(options, 10'000'000);
  EXPECT_EQ(late.step_size, 3e-4f);
  EXPECT_EQ(late.sqrt_bias2, 1);
}

TEST(OptimizerScalarsTest, DecayGoesWhereTheKindHasIt) {
  for (OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW,
                             OptimizerKind::kSgd, OptimizerKind::kLion}) {
    const OptimizerScalars scalars = ComputeOptimizerScalars(
        {.kind = kind, .lr = 0.5, .weight_decay = 0.25}, 2);
    const bool coupled =
        kind == OptimizerKind::kAdam || kind == OptimizerKind::kSgd;
    EXPECT_EQ(scalars.kind, kind);
    EXPECT_EQ(scalars.l2, coupled ? 0.25f : 0);
    EXPECT_EQ(scalars.decay, coupled ? 1 : 0.875f);
  }
}

TEST(OptimizerScalarsTest, TheFirstGradientIsNotDampened) {
  const OptimizerOptions options = {
      .kind = OptimizerKind::kSgd, .momentum = 0.5, .dampening = 0.25};
  EXPECT_EQ(ComputeOptimizerScalars(options, 1).grad_weight1, 1);
  EXPECT_EQ(ComputeOptimizerScalars(options, 2).grad_weight1, 0.75f);
}

TEST(OptimizerDeathTest, RefusesWhatItCannotDo) {
  EXPECT_DEATH(ComputeOptimizerScalars({}, 0), "step >= 1");
  OptimizerBuffers buffers = {.grad_dtype = DType::kF64};
  EXPECT_DEATH(OptimizerStep(buffers, 0, {}, 1), "grad_dtype");
  buffers = {.moment_dtype = DType::kF16};
  EXPECT_DEATH(OptimizerStep(buffers, 0, {}, 1), "moment_dtype");
  float low = 0;
  buffers = {.low = &low, .low_dtype = DType::kF32};
  EXPECT_DEATH(OptimizerStepScalar(buffers, 0, {}, 1), "low_dtype");
}

}  // namespace
}  // namespace castor
