// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <type_traits>

#include "offload/kernels/bfloat16.h"
#include "tests/offload/kernels/flushing_mode.h"
#include "tests/offload/kernels/kernel_data.h"
#include "tests/offload/kernels/target_test.h"

namespace castor {
namespace {

// The buffers of one update, each at an offset of its own.
template <typename Grad>
class State {
 public:
  State(std::mt19937_64& random, int64_t count, int64_t offset)
      : grad_(count, offset),
        param_(count, (offset + 1) % 5),
        exp_avg_(count, (offset + 2) % 5),
        exp_avg_sq_(count, (offset + 3) % 5),
        low_(count, (offset + 4) % 5) {
    Fill(random, count, grad_.data());
    Fill(random, count, param_.data());
    Fill(random, count, exp_avg_.data());
    Fill(random, count, exp_avg_sq_.data());
    // Negative values in it give NaN; most should not.
    for (int64_t i = 0; i < count; ++i) {
      float& value = exp_avg_sq_.data()[i];
      if (random() % 8 != 0) value = std::abs(value);
    }
    Fill(random, count, low_.data());
  }
  State(const State& other)
      : State(other, other.grad_.size(), std::mt19937_64()) {}

  AdamWBuffers Buffers(int64_t from = 0) {
    return {
        .grad = grad_.data() + from,
        .grad_dtype = std::is_same_v<Grad, float> ? DType::kF32 : DType::kBF16,
        .param = param_.data() + from,
        .exp_avg = exp_avg_.data() + from,
        .exp_avg_sq = exp_avg_sq_.data() + from,
        .low = low_.data() + from,
    };
  }

  auto Bits() const {
    return std::tuple(param_.Bits(), exp_avg_.Bits(), exp_avg_sq_.Bits(),
                      low_.Bits(), grad_.Bits());
  }

 private:
  State(const State& other, int64_t count, std::mt19937_64 any)
      : State(any, count, 0) {
    std::copy_n(other.grad_.data(), count, grad_.data());
    std::copy_n(other.param_.data(), count, param_.data());
    std::copy_n(other.exp_avg_.data(), count, exp_avg_.data());
    std::copy_n(other.exp_avg_sq_.data(), count, exp_avg_sq_.data());
    std::copy_n(other.low_.data(), count, low_.data());
  }

  OffsetBuffer<Grad> grad_;
  OffsetBuffer<float> param_;
  OffsetBuffer<float> exp_avg_;
  OffsetBuffer<float> exp_avg_sq_;
  OffsetBuffer<uint16_t> low_;
};

AdamWScalars RandomScalars(std::mt19937_64& random) {
  std::uniform_real_distribution<double> unit(0, 1);
  const AdamWOptions options = {
      .lr = unit(random),
      .beta1 = unit(random),
      .beta2 = unit(random),
      .eps = std::ldexp(1.0, -static_cast<int>(random() % 140)),
      .weight_decay = unit(random),
  };
  return ComputeAdamWScalars(options, 1 + static_cast<int64_t>(random() % 99));
}

using AdamWTest = TargetTest;
CASTOR_INSTANTIATE_FOR_EACH_TARGET(AdamWTest);

template <typename Grad>
void ExpectBitsOfTheScalarForm(std::mt19937_64& random, int64_t count,
                               int64_t offset) {
  State<Grad> vector(random, count, offset);
  State<Grad> scalar(vector);
  const AdamWScalars scalars = RandomScalars(random);
  const float factor = std::ldexp(1.0f, static_cast<int>(random() % 40) - 20);
  AdamWBuffers buffers = vector.Buffers();
  AdamWBuffers expected = scalar.Buffers();
  if (random() % 2 == 0) buffers.low = expected.low = nullptr;
  AdamWStepScalar(expected, count, scalars, factor);
  {
    const FlushingMode flushing;
    AdamWStep(buffers, count, scalars, factor);
  }
  ASSERT_EQ(vector.Bits(), scalar.Bits()) << count << " " << offset;
}

TEST_P(AdamWTest, GivesTheBitsOfTheScalarFormAtEveryLengthAndOffset) {
  std::mt19937_64 random = SeededGenerator();
  for (int64_t count = 0; count < 70; ++count) {
    for (int64_t offset = 0; offset < 5; ++offset) {
      ExpectBitsOfTheScalarForm<float>(random, count, offset);
      ExpectBitsOfTheScalarForm<uint16_t>(random, count, offset);
    }
  }
  ExpectBitsOfTheScalarForm<float>(random, 20011, 1);
  ExpectBitsOfTheScalarForm<uint16_t>(random, 20011, 3);
}

TEST_P(AdamWTest, AnySplitGivesTheSameBits) {
  std::mt19937_64 random = SeededGenerator();
  constexpr int64_t kCount = 150;
  const State<uint16_t> start(random, kCount, 0);
  const AdamWScalars scalars = RandomScalars(random);
  State<uint16_t> whole(start);
  AdamWStep(whole.Buffers(), kCount, scalars, 0.5f);
  for (int64_t cut = 0; cut <= kCount; ++cut) {
    State<uint16_t> split(start);
    AdamWStep(split.Buffers(cut), kCount - cut, scalars, 0.5f);
    AdamWStep(split.Buffers(), cut, scalars, 0.5f);
    ASSERT_EQ(split.Bits(), whole.Bits()) << cut;
  }
}

// Every fusion of a multiply with an add keeps a 2^-46 that two roundings drop.
TEST_P(AdamWTest, RoundsEveryProductBeforeItIsAdded) {
  constexpr float kOneUp = 1 + 0x1p-23f;  // its square rounds to 1 + 2^-22
  constexpr float kTwoUp = 1 + 0x1p-22f;
  constexpr int64_t kCount = 37;
  const auto step = [](float grad, float param, float exp_avg, float exp_avg_sq,
                       const AdamWScalars& scalars) {
    const std::vector<float> grads(kCount, grad);
    std::vector<float> p(kCount, param);
    std::vector<float> m(kCount, exp_avg);
    std::vector<float> v(kCount, exp_avg_sq);
    AdamWStep({.grad = grads.data(),
               .param = p.data(),
               .exp_avg = m.data(),
               .exp_avg_sq = v.data()},
              kCount, scalars, 1.0f);
    for (int64_t i = 1; i < kCount; ++i) {
      EXPECT_EQ(std::tuple(p[i], m[i], v[i]), std::tuple(p[0], m[0], v[0]));
    }
    return std::array<float, 3>{p[0], m[0], v[0]};
  };
  AdamWScalars s = {.eps = 1};
  s.beta1 = kOneUp;
  s.one_minus_beta1 = -1;
  EXPECT_EQ(step(kTwoUp, 0, kOneUp, 0, s)[1], 0);
  s.beta1 = -1;
  s.one_minus_beta1 = kOneUp;
  EXPECT_EQ(step(kOneUp, 0, kTwoUp, 0, s)[1], 0);

  s = {.eps = 1};
  s.beta2 = kOneUp;
  s.one_minus_beta2 = -kTwoUp;
  EXPECT_EQ(step(1, 0, 0, kOneUp, s)[2], 0);
  s.beta2 = -1;
  s.one_minus_beta2 = 1;
  EXPECT_EQ(step(kOneUp, 0, 0, kTwoUp, s)[2], 0);

  s = {.eps = 1};
  s.decay = kOneUp;
  s.beta1 = 1;
  s.step_size = 1;
  EXPECT_EQ(step(0, kOneUp, kTwoUp, 0, s)[0], 0);
  s.decay = 1;
  s.step_size = kOneUp;
  EXPECT_EQ(step(0, kTwoUp, kOneUp, 0, s)[0], 0);
}

// PyTorch's documented formula (torch.optim.AdamW) worked out to fifty decimal
// digits: three parameters, three steps, lr 0.01, weight decay 0.1.
TEST_P(AdamWTest, FollowsPyTorchForThreeSteps) {
  constexpr int64_t kCopies = 7;  // so that vectors are filled, and a rest
  constexpr int64_t kCount = 3 * kCopies;
  const AdamWOptions options = {.lr = 0.01, .weight_decay = 0.1};
  const double grads[3][3] = {
      {0.5, -0.125, 0.03125}, {-0.25, 0.375, 0.0078125}, {1, 0, -0.0625}};
  const double params[3][3] = {
      {1.4885000002, -0.7392500008, -0.008048824925},
      {1.48434812987, -0.743452648955, -0.0163467477894},
      {1.47628266584, -0.746529297874, -0.0135900431606}};
  const double exp_avgs[3][3] = {{0.05, -0.0125, 0.003125},
                                 {0.02, 0.02625, 0.00359375},
                                 {0.118, 0.023625, -0.003015625}};
  const double exp_avg_sqs[3][3] = {
      {0.00025, 1.5625e-05, 9.765625e-07},
      {0.00031225, 0.000156234375, 1.03662109375e-06},
      {0.00131193775, 0.000156078140625, 4.94183447266e-06}};
  std::vector<float> p, m(kCount), v(kCount), g(kCount);
  for (int64_t i = 0; i < kCopies; ++i) {
    p.insert(p.end(), {1.5f, -0.75f, 0.001953125f});
  }
  std::vector<uint16_t> low(kCount);
  for (int t = 0; t < 3; ++t) {
    // Gradients scaled by 128, as loss scaling does.
    for (int64_t i = 0; i < kCount; ++i) {
      g[i] = static_cast<float>(grads[t][i % 3] * 128);
    }
    AdamWStep({.grad = g.data(),
               .param = p.data(),
               .exp_avg = m.data(),
               .exp_avg_sq = v.data(),
               .low = low.data()},
              kCount, ComputeAdamWScalars(options, t + 1), 1.0f / 128);
    for (int64_t i = 0; i < kCount; ++i) {
      const auto near = [](float value, double expected) {
        return std::abs(value - expected) <= 4e-7 * std::abs(expected);
      };
      EXPECT_PRED2(near, p[i], params[t][i % 3]);
      EXPECT_PRED2(near, m[i], exp_avgs[t][i % 3]);
      EXPECT_PRED2(near, v[i], exp_avg_sqs[t][i % 3]);
      EXPECT_EQ(low[i], FloatToBFloat16(p[i]));
    }
  }
}

TEST_P(AdamWTest, StaysWithinRoundingErrorOfTheFormula) {
  std::mt19937_64 random = SeededGenerator();
  std::normal_distribution<float> normal;
  constexpr int64_t kCount = 1000;
  constexpr long double kUnit = 0x1p-24L;  // of one rounding
  for (int64_t step : {1, 2, 10, 1000, 1000000}) {
    const AdamWOptions options;
    const AdamWScalars scalars = ComputeAdamWScalars(options, step);
    const float factor = 0.37f;
    std::vector<float> g(kCount), p(kCount), m(kCount), v(kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      g[i] = normal(random) * 0.01f;
      p[i] = normal(random);
      m[i] = normal(random) * 0.01f;
      v[i] = std::abs(normal(random)) * 1e-4f;
    }
    std::vector<float> new_p = p, new_m = m, new_v = v;
    AdamWStep({.grad = g.data(),
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

TEST_P(AdamWTest, PaddingStaysZero) {
  constexpr int64_t kCount = 45;
  const std::vector<float> zero(kCount);
  std::vector<float> p(kCount), m(kCount), v(kCount);
  std::vector<uint16_t> low(kCount, 1);
  for (int64_t step = 1; step < 4; ++step) {
    AdamWStep({.grad = zero.data(),
               .param = p.data(),
               .exp_avg = m.data(),
               .exp_avg_sq = v.data(),
               .low = low.data()},
              kCount, ComputeAdamWScalars({}, step), 0.1f);
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

TEST(AdamWScalarsTest, ComputesBiasCorrectionsInDouble) {
  const AdamWOptions options = {.lr = 3e-4, .weight_decay = 0.1};
  const AdamWScalars first = ComputeAdamWScalars(options, 1);
  EXPECT_EQ(first.decay, static_cast<float>(1 - 3e-4 * 0.1));
  EXPECT_EQ(first.beta1, 0.9f);
  EXPECT_EQ(first.one_minus_beta1, 0.1f);
  EXPECT_EQ(first.beta2, 0.999f);
  // In fp32, 1 - 0.999 would be 2e-5 off.
  EXPECT_EQ(first.one_minus_beta2, 0.001f);
  EXPECT_FLOAT_EQ(first.step_size, 3e-3f);
  EXPECT_FLOAT_EQ(first.sqrt_bias2, 0.0316227766f);
  EXPECT_EQ(first.eps, 1e-8f);
  const AdamWScalars late = ComputeAdamWScalars(options, 10'000'000);
  EXPECT_EQ(late.step_size, 3e-4f);
  EXPECT_EQ(late.sqrt_bias2, 1);
}

TEST(AdamWDeathTest, RefusesWhatItCannotDo) {
  EXPECT_DEATH(ComputeAdamWScalars({}, 0), "step >= 1");
  AdamWBuffers buffers = {.grad_dtype = DType::kF16};
  EXPECT_DEATH(AdamWStep(buffers, 0, {}, 1), "grad_dtype");
  float low = 0;
  buffers = {.low = &low, .low_dtype = DType::kF16};
  EXPECT_DEATH(AdamWStepScalar(buffers, 0, {}, 1), "low_dtype");
}

}  // namespace
}  // namespace castor
