// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The corners of each formula; optimizer_formula_test.cc has the numbers.

#include "offload/kernels/optimizer_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace castor {
namespace {

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

}  // namespace
}  // namespace castor
