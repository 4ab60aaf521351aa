// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/weight_digest.h"

#include <vector>

#include "gtest/gtest.h"

namespace castor::gpt {
namespace {

TEST(WeightDigestTest, DependsOnEveryBitAndItsPlace) {
  std::vector<float> values(130, 1.0f);
  const uint64_t digest = WeightDigest(ParamId(3), values);
  EXPECT_EQ(WeightDigest(ParamId(3), values), digest);
  EXPECT_NE(WeightDigest(ParamId(4), values), digest);
  for (size_t i : {0u, 63u, 64u, 129u}) {
    std::vector<float> changed = values;
    changed[i] = 1.0000001f;
    EXPECT_NE(WeightDigest(ParamId(3), changed), digest) << i;
  }
  std::vector<float> first = values;
  std::vector<float> second = values;
  first[0] = 2;
  second[64] = 2;  // the same block of values at another place
  EXPECT_NE(WeightDigest(ParamId(3), first), WeightDigest(ParamId(3), second));
  values.pop_back();
  EXPECT_NE(WeightDigest(ParamId(3), values), digest);
}

TEST(WeightDigestTest, OfNothingIsZero) {
  EXPECT_EQ(WeightDigest(ParamId(3), {}), 0u);
}

}  // namespace
}  // namespace castor::gpt
