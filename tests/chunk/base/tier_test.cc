// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/tier.h"

#include <cstddef>

#include "gtest/gtest.h"

namespace castor {
namespace {

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
