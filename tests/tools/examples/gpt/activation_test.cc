// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tools/examples/gpt/layers.h"

namespace castor::gpt {
namespace {

template <typename T>
class ActivationTest : public testing::Test {
 protected:
  static constexpr double kEpsilon = std::numeric_limits<T>::epsilon();

  static std::vector<T> Range(double from, double to, int count) {
    std::vector<T> x;
    for (int i = 0; i < count; ++i) {
      x.push_back(static_cast<T>(from + (to - from) * i / (count - 1)));
    }
    return x;
  }
  static double TrueGelu(double x) {
    return 0.5 * x *
           (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
};

using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(ActivationTest, Scalars);

TYPED_TEST(ActivationTest, ExponentialIsAccurateOverItsWholeRange) {
  const double least = sizeof(TypeParam) == 4 ? -87 : -708;
  std::vector<TypeParam> x = this->Range(least, 0, 100'003);
  const std::vector<TypeParam> given = x;
  ExpMinus(x.data(), static_cast<int64_t>(x.size()), TypeParam{0});
  for (size_t i = 0; i < x.size(); ++i) {
    const double truth = std::exp(static_cast<double>(given[i]));
    ASSERT_NEAR(x[i] / truth, 1, 2 * this->kEpsilon) << given[i];
  }
}

TYPED_TEST(ActivationTest, ExponentialOfZeroIsOneAndOfVeryLittleIsTiny) {
  std::vector<TypeParam> x = {5, 5 - TypeParam(1e6),
                              -std::numeric_limits<TypeParam>::infinity()};
  ExpMinus(x.data(), 3, TypeParam{5});
  EXPECT_EQ(x[0], TypeParam{1});
  EXPECT_LT(x[1], TypeParam(1e-37));
  EXPECT_LT(x[2], TypeParam(1e-37));
}

TYPED_TEST(ActivationTest, GeluIsItsTanhForm) {
  const std::vector<TypeParam> x = this->Range(-12, 12, 10'007);
  std::vector<TypeParam> y(x.size());
  Gelu(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double truth = this->TrueGelu(x[i]);
    // Far to the left GELU is a product of something huge and something tiny.
    ASSERT_NEAR(y[i], truth, 20 * this->kEpsilon * std::fabs(x[i])) << x[i];
  }
}

TYPED_TEST(ActivationTest, SlopeIsTheDerivativeOfGelu) {
  const std::vector<TypeParam> given = this->Range(-8, 8, 4'001);
  std::vector<TypeParam> x = given;
  std::vector<TypeParam> y(x.size());
  std::vector<TypeParam> again(x.size());
  GeluAndSlope(x.data(), static_cast<int64_t>(x.size()), y.data());
  Gelu(given.data(), static_cast<int64_t>(given.size()), again.data());
  EXPECT_EQ(y, again);
  for (size_t i = 0; i < x.size(); ++i) {
    const double h = 1e-5;
    const double difference =
        (this->TrueGelu(given[i] + h) - this->TrueGelu(given[i] - h)) / (2 * h);
    ASSERT_NEAR(x[i], difference, 1e-9 + 50 * this->kEpsilon) << given[i];
  }
}

TYPED_TEST(ActivationTest, AnElementsResultDoesNotDependOnItsNeighbours) {
  const std::vector<TypeParam> x = this->Range(-3, 3, 67);
  std::vector<TypeParam> whole(x.size());
  Gelu(x.data(), static_cast<int64_t>(x.size()), whole.data());
  for (size_t i = 0; i < x.size(); ++i) {
    TypeParam one = 0;
    Gelu(&x[i], 1, &one);
    ASSERT_EQ(one, whole[i]);
  }
}

}  // namespace
}  // namespace castor::gpt
