// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/stable_sort.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace castor {
namespace {

TEST(StableSortTest, KeepsTheOrderOfEquals) {
  std::vector<std::pair<int, int>> items;
  for (int i = 0; i < 1000; ++i) items.emplace_back(i * 7919 % 10, i);
  StableSort(&items,
             [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 1; i < items.size(); ++i) {
    EXPECT_LT(items[i - 1], items[i]);
  }
}

TEST(StableSortTest, MovesWhatCannotBeCopied) {
  std::vector<std::unique_ptr<int>> items;
  for (const int value : {3, 1, 2})
    items.push_back(std::make_unique<int>(value));
  StableSort(&items, [](const auto& a, const auto& b) { return *a < *b; });
  EXPECT_EQ(*items[0], 1);
  EXPECT_EQ(*items[1], 2);
  EXPECT_EQ(*items[2], 3);
}

}  // namespace
}  // namespace castor
