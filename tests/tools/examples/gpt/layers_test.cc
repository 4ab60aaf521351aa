// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/layers.h"

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace castor::gpt {
namespace {

using Array = std::vector<double>;

class LayersTest : public testing::Test {
 protected:
  Array Random(int64_t count) {
    std::uniform_real_distribution<double> uniform(-1, 1);
    Array x(static_cast<size_t>(count));
    for (double& v : x) v = uniform(random_);
    return x;
  }

  // Whether `gradient` is that of sum(forward() * dy) with respect to `x`.
  static void ExpectGradient(const Array& gradient, Array& x, const Array& dy,
                             const std::function<Array()>& forward) {
    ASSERT_EQ(gradient.size(), x.size());
    const auto loss = [&] {
      const Array y = forward();
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    for (size_t i = 0; i < x.size(); ++i) {
      const double h = 1e-5;
      const double was = x[i];
      x[i] = was + h;
      const double up = loss();
      x[i] = was - h;
      const double down = loss();
      x[i] = was;
      ASSERT_NEAR(gradient[i], (up - down) / (2 * h), 1e-8) << "element " << i;
    }
  }

  std::mt19937 random_{1};
};

TEST_F(LayersTest, EmbeddingAddsTokenAndPosition) {
  const std::vector<int> tokens = {2, 0, 2, 1};
  const Array table = {1, 2, 3, 4, 5, 6};
  const Array positions = {10, 20, 30, 40};
  Array x(8);
  EmbeddingForward(tokens.data(), 4, 2, 2, table.data(), positions.data(),
                   x.data());
  EXPECT_EQ(x, (Array{15, 26, 31, 42, 15, 26, 33, 44}));
}

TEST_F(LayersTest, EmbeddingGradientAddsUpWhereATokenRepeats) {
  const std::vector<int> tokens = {2, 0, 2};
  Array grad = {1, 1, 1, 1, 1, 1};
  const Array dx = {1, 2, 3, 4, 5, 6};
  EmbeddingBackward(dx.data(), tokens.data(), 3, 2, grad.data());
  EXPECT_EQ(grad, (Array{4, 5, 1, 1, 7, 9}));
}

TEST_F(LayersTest, LayerNormHasMeanZeroAndDeviationOne) {
  const Array x = Random(3 * 40);
  const Array one(40, 1.0);
  const Array zero(40, 0.0);
  Array y(x.size());
  Array mean(3), deviation(3);
  LayerNormForward(x.data(), 3, 40, one.data(), zero.data(), y.data(),
                   mean.data(), deviation.data());
  for (size_t n = 0; n < 3; ++n) {
    double sum = 0;
    double squares = 0;
    for (size_t i = 0; i < 40; ++i) {
      sum += y[n * 40 + i];
      squares += y[n * 40 + i] * y[n * 40 + i];
    }
    EXPECT_NEAR(sum, 0, 1e-12);
    EXPECT_NEAR(squares / 40, 1, 1e-4);
  }
}

TEST_F(LayersTest, LayerNormGradientsEqualFiniteDifferences) {
  Array x = Random(3 * 7);
  Array weight = Random(7);
  Array bias = Random(7);
  const Array dy = Random(3 * 7);
  Array y(x.size()), mean(3), deviation(3);
  const auto forward = [&] {
    LayerNormForward(x.data(), 3, 7, weight.data(), bias.data(), y.data(),
                     mean.data(), deviation.data());
    return y;
  };
  forward();
  Array dx(x.size()), dweight(7), dbias(7);
  LayerNormBackward(dy.data(), x.data(), mean.data(), deviation.data(), 3, 7,
                    weight.data(), dx.data(), dweight.data(), dbias.data());
  ExpectGradient(dx, x, dy, forward);
  ExpectGradient(dweight, weight, dy, forward);
  ExpectGradient(dbias, bias, dy, forward);
}

TEST_F(LayersTest, LinearGradientsEqualFiniteDifferences) {
  const LinearShape shape = {4, 3, 5};
  Array x = Random(4 * 3);
  Array weight = Random(3 * 5);
  Array bias = Random(5);
  const Array dy = Random(4 * 5);
  const auto forward = [&] {
    Array y(dy.size());
    LinearForward(shape, x.data(), weight.data(), bias.data(), y.data());
    return y;
  };
  Array dx(x.size()), dweight(weight.size()), dbias(bias.size());
  LinearBackwardInput(shape, dy.data(), weight.data(), dx.data());
  LinearBackwardParams(shape, dy.data(), x.data(), dweight.data(),
                       dbias.data());
  ExpectGradient(dx, x, dy, forward);
  ExpectGradient(dweight, weight, dy, forward);
  ExpectGradient(dbias, bias, dy, forward);
}

TEST_F(LayersTest, LinearForwardAddAddsToTheStream) {
  const LinearShape shape = {4, 3, 5};
  const Array x = Random(4 * 3);
  const Array weight = Random(3 * 5);
  const Array bias = Random(5);
  const Array stream = Random(4 * 5);
  Array branch(stream.size());
  LinearForward(shape, x.data(), weight.data(), bias.data(), branch.data());
  Array sum = stream;
  LinearForwardAdd(shape, x.data(), weight.data(), bias.data(), sum.data());
  for (size_t i = 0; i < sum.size(); ++i) {
    EXPECT_NEAR(sum[i], stream[i] + branch[i], 1e-14);
  }
}

TEST_F(LayersTest, CrossEntropyOfAGuessIsTheLogarithmOfTheVocabulary) {
  Array logits(2 * 10, 3.0);
  const std::vector<int> targets = {4, 9};
  EXPECT_NEAR(CrossEntropy(logits.data(), targets.data(), 2, 10), std::log(10),
              1e-12);
}

TEST_F(LayersTest, CrossEntropyGradientEqualsFiniteDifferences) {
  Array logits = Random(3 * 6);
  const std::vector<int> targets = {5, 0, 0};
  Array gradient = logits;
  CrossEntropy(gradient.data(), targets.data(), 3, 6);
  ExpectGradient(gradient, logits, {1.0}, [&] {
    Array copy = logits;
    return Array{CrossEntropy(copy.data(), targets.data(), 3, 6)};
  });
}

TEST(LaneSumTest, AddsEveryTermOnce) {
  for (int64_t count = 0; count < 70; ++count) {
    EXPECT_EQ(LaneSum<double>(
                  count, [](int64_t i) { return static_cast<double>(i + 1); }),
              static_cast<double>(count * (count + 1) / 2));
  }
}

TEST(LaneSumTest, KeepsItsOrder) {
  std::vector<float> x;
  for (int i = 0; i < 100; ++i) x.push_back(std::sin(static_cast<float>(i)));
  float lanes[16] = {};
  for (size_t i = 0; i < x.size(); ++i) lanes[i % 16] += x[i];
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  EXPECT_EQ(
      LaneSum<float>(100, [&](int64_t i) { return x[static_cast<size_t>(i)]; }),
      lanes[0]);
}

}  // namespace
}  // namespace castor::gpt
