// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tools/examples/gpt/layers.h"

namespace castor::gpt {
namespace {

std::vector<double> Random(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> x(static_cast<size_t>(count));
  for (double& v : x) v = uniform(random);
  return x;
}

// Attention as one writes it on a blackboard.
std::vector<double> Naive(const AttentionShape& s,
                          const std::vector<double>& qkv) {
  const int64_t size = s.embd / s.heads;
  std::vector<double> y(static_cast<size_t>(s.batch * s.seq * s.embd));
  const auto at = [&](int64_t b, int64_t t, int which, int64_t h, int64_t i) {
    return qkv[static_cast<size_t>((b * s.seq + t) * 3 * s.embd +
                                   which * s.embd + h * size + i)];
  };
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t t = 0; t < s.seq; ++t) {
        std::vector<double> weight;
        double sum = 0;
        for (int64_t u = 0; u <= t; ++u) {
          double score = 0;
          for (int64_t i = 0; i < size; ++i) {
            score += at(b, t, 0, h, i) * at(b, u, 1, h, i);
          }
          weight.push_back(
              std::exp(score / std::sqrt(static_cast<double>(size))));
          sum += weight.back();
        }
        for (int64_t i = 0; i < size; ++i) {
          double value = 0;
          for (int64_t u = 0; u <= t; ++u) {
            value += weight[static_cast<size_t>(u)] / sum * at(b, u, 2, h, i);
          }
          y[static_cast<size_t>((b * s.seq + t) * s.embd + h * size + i)] =
              value;
        }
      }
    }
  }
  return y;
}

class AttentionTest : public testing::TestWithParam<AttentionShape> {
 protected:
  int64_t tokens() const { return GetParam().batch * GetParam().seq; }
  // Not a number wherever nothing may be read.
  std::vector<double> Probabilities() const {
    const AttentionShape& s = GetParam();
    return std::vector<double>(
        static_cast<size_t>(s.batch * s.heads * s.seq * s.seq),
        std::numeric_limits<double>::quiet_NaN());
  }
};

TEST_P(AttentionTest, ForwardEqualsTheDefinition) {
  const std::vector<double> qkv = Random(tokens() * 3 * GetParam().embd, 1);
  std::vector<double> p = Probabilities();
  std::vector<double> y(static_cast<size_t>(tokens() * GetParam().embd));
  AttentionForward(GetParam(), qkv.data(), p.data(), y.data());
  const std::vector<double> truth = Naive(GetParam(), qkv);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], truth[i], 1e-12);
}

TEST_P(AttentionTest, BackwardEqualsFiniteDifferences) {
  std::vector<double> qkv = Random(tokens() * 3 * GetParam().embd, 2);
  const std::vector<double> dy = Random(tokens() * GetParam().embd, 3);
  std::vector<double> p = Probabilities();
  std::vector<double> y(dy.size());
  std::vector<double> dqkv(qkv.size(),
                           std::numeric_limits<double>::quiet_NaN());
  std::vector<double> scratch(
      static_cast<size_t>(AttentionScratch(GetParam())));
  AttentionForward(GetParam(), qkv.data(), p.data(), y.data());
  AttentionBackward(GetParam(), dy.data(), qkv.data(), p.data(), scratch.data(),
                    dqkv.data());
  const auto loss = [&] {
    std::vector<double> fresh = Probabilities();
    AttentionForward(GetParam(), qkv.data(), fresh.data(), y.data());
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  // A prime stride meets every token, head and kind of column.
  for (size_t i = 0; i<qkv.size(); i += qkv.size()> 1000 ? 37 : 1) {
    const double h = 1e-5;
    const double was = qkv[i];
    qkv[i] = was + h;
    const double up = loss();
    qkv[i] = was - h;
    const double down = loss();
    qkv[i] = was;
    ASSERT_NEAR(dqkv[i], (up - down) / (2 * h), 1e-8) << "element " << i;
  }
}

// Lengths below, at and above the size of a block of rows.
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         testing::Values(AttentionShape{1, 1, 1, 1},
                                         AttentionShape{2, 5, 2, 6},
                                         AttentionShape{1, 64, 1, 4},
                                         AttentionShape{1, 65, 2, 4},
                                         AttentionShape{1, 130, 1, 3}));

}  // namespace
}  // namespace castor::gpt
