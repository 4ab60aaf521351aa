// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/model.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"
#include "tools/examples/gpt/plain_params.h"

namespace castor::gpt {
namespace {

struct Batch {
  std::vector<int> tokens;
  std::vector<int> targets;
};

Batch RandomBatch(const GptConfig& config, int batch, std::mt19937_64& random) {
  std::uniform_int_distribution<int> token(0, config.vocab - 1);
  Batch out;
  for (int i = 0; i < batch * config.context; ++i) {
    out.tokens.push_back(token(random));
    out.targets.push_back(token(random));
  }
  return out;
}

// Initial values are too tame to test gradients on: biases are zero and the
// branches hardly matter.
void Randomize(PlainParams<double>& params, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0, 0.4);
  for (int32_t i = 0; i < params.size(); ++i) {
    for (double& value : params.master(ParamId(i))) value += normal(random);
  }
}

TEST(ModelTest, GradientsOfEveryParameterEqualFiniteDifferences) {
  std::mt19937_64 random(TestSeed(5));
  const GptConfig config = {
      .vocab = 11, .context = 6, .layers = 2, .heads = 2, .embd = 8};
  constexpr int kBatch = 2;
  PlainParams<double> params(config, Precision::kFull, 1);
  Randomize(params, random);
  const Batch batch = RandomBatch(config, kBatch, random);
  Gpt<double> model(config, kBatch);

  params.BeginMicroBatch(/*first=*/true);
  ASSERT_THAT(model.Forward(params, batch.tokens, batch.targets), IsOk());
  ASSERT_THAT(model.Backward(params), IsOk());
  params.EndMicroBatch();

  const GptParams names(config);
  for (int32_t p = 0; p < params.size(); ++p) {
    const ParamId id(p);
    const std::span<double> values = params.master(id);
    const std::span<const double> gradient = params.gradient(id);
    double largest = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double was = values[i];
      const double h = 1e-5;
      values[i] = was + h;
      const double up = *model.Forward(params, batch.tokens, batch.targets);
      values[i] = was - h;
      const double down = *model.Forward(params, batch.tokens, batch.targets);
      values[i] = was;
      ASSERT_NEAR(gradient[i], (up - down) / (2 * h), 2e-8)
          << names.param(id).name << " element " << i;
      largest = std::max(largest, std::fabs(gradient[i]));
    }
    // The comparison above would hold for a model that ignores a parameter.
    EXPECT_GT(largest, 1e-5) << names.param(id).name;
  }
}

TEST(ModelTest, AnUntrainedModelGuesses) {
  std::mt19937_64 random(TestSeed(6));
  const GptConfig config = {
      .vocab = 256, .context = 32, .layers = 2, .heads = 4, .embd = 32};
  PlainParams<float> params(config, Precision::kFull, 3);
  const Batch batch = RandomBatch(config, 4, random);
  Gpt<float> model(config, 4);
  EXPECT_NEAR(*model.Forward(params, batch.tokens, batch.targets),
              std::log(256), 0.1);
}

// With N tokens, loss = (others + last) / N. The probabilities of the last
// token's possible targets add to one, so the sum of exp(-N loss) over them is
// exp(-others): what the tokens before the last one make of their own targets.
TEST(ModelTest, ATokenDoesNotSeeTheOnesAfterIt) {
  std::mt19937_64 random(TestSeed(7));
  const GptConfig config = {
      .vocab = 11, .context = 6, .layers = 2, .heads = 2, .embd = 8};
  PlainParams<double> params(config, Precision::kFull, 1);
  Randomize(params, random);
  Batch batch = RandomBatch(config, 1, random);
  Gpt<double> model(config, 1);
  const auto loss = [&](int last_target) {
    batch.targets.back() = last_target;
    return *model.Forward(params, batch.tokens, batch.targets);
  };
  const auto others = [&] {
    double sum = 0;
    for (int target = 0; target < config.vocab; ++target) {
      sum += std::exp(-config.context * loss(target));
    }
    return -std::log(sum);
  };
  const std::span<double> positions =
      params.master(GptParams(config).position_embedding());
  const double loss_before = loss(0);
  const double others_before = others();
  positions.back() += 0.3;  // of the last token alone
  EXPECT_GT(std::fabs(loss(0) - loss_before), 1e-4);
  EXPECT_NEAR(others(), others_before, 1e-9);
}

TEST(ModelTest, TheSameInputsGiveTheSameBits) {
  std::mt19937_64 random(TestSeed(8));
  const GptConfig config = {
      .vocab = 64, .context = 70, .layers = 2, .heads = 2, .embd = 32};
  const Batch batch = RandomBatch(config, 2, random);
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients;
  for (int run = 0; run < 2; ++run) {
    PlainParams<float> params(config, Precision::kFull, 3);
    Gpt<float> model(config, 2);
    params.BeginMicroBatch(true);
    losses.push_back(*model.Forward(params, batch.tokens, batch.targets));
    ASSERT_THAT(model.Backward(params), IsOk());
    for (int32_t i = 0; i < params.size(); ++i) {
      const std::span<const float> gradient = params.gradient(ParamId(i));
      gradients.emplace_back(gradient.begin(), gradient.end());
    }
  }
  EXPECT_EQ(losses[0], losses[1]);
  const size_t half = gradients.size() / 2;
  for (size_t i = 0; i < half; ++i)
    EXPECT_EQ(gradients[i], gradients[half + i]);
}

}  // namespace
}  // namespace castor::gpt
