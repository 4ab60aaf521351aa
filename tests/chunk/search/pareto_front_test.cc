// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/pareto_front.h"

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

bool Dominates(const ParetoPoint& a, const ParetoPoint& b) {
  return a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2] && a != b;
}

TEST(ParetoFrontTest, EqualsComparingAllPairs) {
  std::mt19937_64 random(TestSeed(3));
  for (int round = 0; round < 2000; ++round) {
    const uint64_t range = 1 + random() % 12;
    std::vector<ParetoPoint> points(random() % 40);
    for (ParetoPoint& point : points) {
      for (int64_t& cost : point) {
        cost = static_cast<int64_t>(random() % range);
      }
    }
    std::vector<size_t> expected;
    for (size_t i = 0; i < points.size(); ++i) {
      bool keep = true;
      for (size_t j = 0; j < points.size(); ++j) {
        if (Dominates(points[j], points[i])) keep = false;
        if (j < i && points[j] == points[i]) keep = false;
      }
      if (keep) expected.push_back(i);
    }
    ASSERT_EQ(ParetoFront(points), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace castor
