// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/ids.h"

#include <cstddef>
#include <set>
#include <sstream>
#include <type_traits>
#include <unordered_set>

#include "chunk/base/tier.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

static_assert(!std::is_convertible_v<ParamId, ChunkId>);
static_assert(!std::is_constructible_v<ParamId, ChunkId>);
static_assert(!std::is_convertible_v<int, ChunkId>);

TEST(IdsTest, NamesNothingAtFirst) {
  EXPECT_FALSE(ChunkId().valid());
  EXPECT_EQ(ChunkId(), ChunkId(-1));
}

TEST(IdsTest, IsAnIndex) {
  const ChunkId id(7);
  EXPECT_TRUE(id.valid());
  EXPECT_EQ(id.value(), 7);
  EXPECT_EQ(id.index(), 7u);
  EXPECT_TRUE(ChunkId(0).valid());
}

TEST(IdsTest, OrdersAndHashes) {
  EXPECT_LT(ParamId(1), ParamId(2));
  const std::set<ParamId> ordered = {ParamId(2), ParamId(1), ParamId(2)};
  EXPECT_EQ(ordered.size(), 2u);
  EXPECT_EQ(*ordered.begin(), ParamId(1));
  const std::unordered_set<ParamId> hashed = {ParamId(2), ParamId(1),
                                              ParamId(2)};
  EXPECT_EQ(hashed.size(), 2u);
  EXPECT_TRUE(hashed.contains(ParamId(2)));
}

TEST(IdsTest, Prints) {
  std::ostringstream out;
  out << Moment(12);
  EXPECT_EQ(out.str(), "12");
}

TEST(TierTest, TiersAreOrderedFastestFirstAndIndexArrays) {
  for (size_t i = 0; i < kAllTiers.size(); ++i) {
    EXPECT_EQ(TierIndex(kAllTiers[i]), i);
  }
  EXPECT_EQ(TierName(Tier::kDevice), "device");
  EXPECT_EQ(TierName(Tier::kHost), "host");
  EXPECT_EQ(TierName(Tier::kNvme), "nvme");
}

}  // namespace
}  // namespace castor
