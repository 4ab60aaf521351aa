// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/layer_repeat.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/chunk/layered_shapes.h"
#include "tests/chunk/naive_packing.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

// Tries every run, by the words of the header.
std::optional<LayerRepeat> BruteForce(const std::vector<int64_t>& sizes) {
  const size_t count = sizes.size();
  std::optional<LayerRepeat> best;
  int64_t best_sum = 0;
  for (size_t params = 1; params <= count; ++params) {
    for (size_t first = 0; first + 2 * params <= count; ++first) {
      const auto begin = sizes.begin() + static_cast<int64_t>(first);
      const auto width = static_cast<int64_t>(params);
      const int64_t one = std::accumulate(begin, begin + width, int64_t{0});
      size_t repeats = 1;
      while (first + (repeats + 1) * params <= count &&
             std::equal(begin, begin + width,
                        begin + static_cast<int64_t>(repeats) * width)) {
        ++repeats;
      }
      const int64_t sum = one * static_cast<int64_t>(repeats);
      if (repeats >= 2 && sum > best_sum) {
        best_sum = sum;
        best = {static_cast<int64_t>(first), width,
                static_cast<int64_t>(repeats)};
      }
    }
  }
  return best;
}

void ExpectEqualsBruteForce(const std::vector<int64_t>& sizes) {
  const std::optional<LayerRepeat> expected = BruteForce(sizes);
  const std::optional<LayerRepeat> found = FindLayerRepeat(SizesOf(sizes));
  SCOPED_TRACE(testing::PrintToString(sizes));
  ASSERT_EQ(found.has_value(), expected.has_value());
  if (!found) return;
  EXPECT_EQ(found->first, expected->first);
  EXPECT_EQ(found->params, expected->params);
  EXPECT_EQ(found->repeats, expected->repeats);
}

TEST(LayerRepeatTest, EqualsBruteForceOnEveryShortListOfTwoSizes) {
  for (const std::vector<int64_t>& letters :
       {std::vector<int64_t>{1, 2}, {0, 1}, {1, 1000}}) {
    for (size_t length = 0; length <= 12; ++length) {
      for (uint32_t bits = 0; bits < (1u << length); ++bits) {
        std::vector<int64_t> sizes;
        for (size_t i = 0; i < length; ++i) {
          sizes.push_back(letters[(bits >> i) & 1]);
        }
        ExpectEqualsBruteForce(sizes);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(LayerRepeatTest, EqualsBruteForceOnRandomLists) {
  std::mt19937_64 random(TestSeed(2023));
  const auto below = [&random](size_t bound) {
    return static_cast<size_t>(random() % bound);
  };
  for (int round = 0; round < 4000; ++round) {
    // A few sizes, among them zero and equal ones.
    std::vector<int64_t> letters(1 + below(4));
    for (int64_t& letter : letters) letter = static_cast<int64_t>(below(6));
    const auto draw = [&](size_t most) {
      std::vector<int64_t> sizes(below(most + 1));
      for (int64_t& size : sizes) size = letters[below(letters.size())];
      return sizes;
    };
    // Runs within runs: a layer that holds some itself, repeated, and the start
    // of one more.
    std::vector<int64_t> sizes = draw(12);
    std::vector<int64_t> layer = draw(4);
    const std::vector<int64_t> expert = draw(3);
    for (size_t i = below(4); i > 0; --i) {
      layer.insert(layer.end(), expert.begin(), expert.end());
    }
    for (size_t i = below(5); i > 0; --i) {
      sizes.insert(sizes.end(), layer.begin(), layer.end());
    }
    sizes.insert(sizes.end(), layer.begin(),
                 layer.begin() + static_cast<int64_t>(below(layer.size() + 1)));
    const std::vector<int64_t> last = draw(12);
    sizes.insert(sizes.end(), last.begin(), last.end());
    SCOPED_TRACE(testing::Message() << "round " << round);
    ExpectEqualsBruteForce(sizes);
    if (HasFailure()) return;
  }
}

TEST(LayerRepeatTest, EqualsBruteForceWhereRunsAbound) {
  // Fibonacci's word has as many runs, of as many periods, as a list can have.
  std::vector<int64_t> shorter = {3};
  std::vector<int64_t> word = {3, 5};
  while (word.size() < 200) {
    std::vector<int64_t> longer = word;
    longer.insert(longer.end(), shorter.begin(), shorter.end());
    shorter = std::move(word);
    word = std::move(longer);
    ExpectEqualsBruteForce(word);
  }
  ExpectEqualsBruteForce(std::vector<int64_t>(200, 7));
}

TEST(LayerRepeatTest, FindsTheLayersOfPublicModels) {
  for (const LayeredShape& shape : LayeredShapes()) {
    SCOPED_TRACE(shape.name);
    const std::optional<LayerRepeat> found = FindLayerRepeat(shape.sizes);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->first, shape.repeat.first);
    EXPECT_EQ(found->params, shape.repeat.params);
    EXPECT_EQ(found->repeats, shape.repeat.repeats);
  }
}

TEST(LayerRepeatTest, FindsALayerAmongFortyFiveThousandRandomSizes) {
  std::mt19937_64 random(TestSeed(8));
  std::vector<Elements> sizes;
  for (int i = 0; i < 45000; ++i) {
    sizes.emplace_back(1 + static_cast<int64_t>(random() % 1'000'000'000));
  }
  std::copy(sizes.begin() + 30000, sizes.begin() + 30100,
            sizes.begin() + 30100);
  const std::optional<LayerRepeat> found = FindLayerRepeat(sizes);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->first, 30000);
  EXPECT_EQ(found->params, 100);
  EXPECT_EQ(found->repeats, 2);
}

}  // namespace
}  // namespace castor
