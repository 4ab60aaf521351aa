// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/rules/grid_search.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/chunk/rules/rule_lists.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

// Every size of the grid, each packed anew.
GridChoice TryAll(const std::vector<Elements>& sizes, int64_t first,
                  int64_t last, int64_t step) {
  GridChoice best;
  for (int64_t c = first; c <= last; c += step) {
    int64_t chunks = 0;
    int64_t used = c;
    int64_t sum = 0;
    for (const Elements size : sizes) {
      sum += size.count();
      if (used + size.count() > c) {
        ++chunks;
        used = 0;
      }
      used += size.count();
    }
    const Elements waste(chunks * c - sum);
    if (best.evaluations++ == 0 || waste < best.waste) {
      best.chunk_size = Elements(c);
      best.waste = waste;
    }
  }
  return best;
}

TEST(GridSearchTest, FindsWhatTryingEverySizeFinds) {
  std::mt19937_64 random(TestSeed(20261121));
  int64_t tried = 0;
  int64_t evaluated = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<Elements> sizes;
    int64_t largest = 1;
    for (const int64_t size : RandomRuleSizes(random, 40, 300)) {
      sizes.emplace_back(size);
      largest = std::max(largest, size);
    }
    const int64_t step = 1 + static_cast<int64_t>(random() % 20);
    const int64_t first = largest + static_cast<int64_t>(random() % 50);
    const int64_t last = first + static_cast<int64_t>(random() % 3000);
    const GridChoice all = TryAll(sizes, first, last, step);
    const GridChoice found = LeastWasteOnGrid(sizes, Elements(first),
                                              Elements(last), Elements(step));
    ASSERT_EQ(found.chunk_size, all.chunk_size) << "round " << round;
    ASSERT_EQ(found.waste, all.waste) << "round " << round;
    tried += all.evaluations;
    evaluated += found.evaluations;
  }
  EXPECT_LT(evaluated, tried / 4);
}

TEST(GridSearchTest, TakesTheFirstOfEquallyGoodSizes) {
  const std::vector<Elements> sizes = {Elements(4), Elements(4)};
  const GridChoice choice =
      LeastWasteOnGrid(sizes, Elements(4), Elements(8), Elements(1));
  EXPECT_EQ(choice.chunk_size, Elements(4));
  EXPECT_EQ(choice.waste, Elements(0));
}

TEST(GridSearchTest, AnEmptyListWastesNothing) {
  const GridChoice choice =
      LeastWasteOnGrid({}, Elements(16), Elements(160), Elements(16));
  EXPECT_EQ(choice.chunk_size, Elements(16));
  EXPECT_EQ(choice.waste, Elements(0));
}

}  // namespace
}  // namespace castor
