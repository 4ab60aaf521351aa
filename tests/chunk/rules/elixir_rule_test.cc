// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/rules/elixir_rule.h"

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "tests/chunk/rules/rule_lists.h"

namespace castor {
namespace {

// What the original functions gave in 2 bytes an element.
struct KnownModel {
  std::string name;
  std::vector<ParamSpec> params;
  int64_t chunk_size;  // 0: only the waste is known
  double truth;        // percent of what is allocated
};

TEST(ElixirRuleTest, PicksWhatTheOriginalPicks) {
  const std::vector<KnownModel> models = {
      {"LLaMA-7B", Llama7B(), 202391552, 2.08},
      {"LLaMA-13B", Llama13B(), 0, 2.30},
      {"Llama-2-70B", Llama2With70B(), 310444032, 8.56},
      {"Llama-3-70B", Llama3Of70B(), 0, 1.85},
  };
  for (const KnownModel& model : models) {
    SCOPED_TRACE(model.name);
    const RuleResult found =
        ApplyElixirRule(AsRuleParams(model.params), {.world = 8});
    ASSERT_TRUE(found.chunk_size);
    if (model.chunk_size > 0) {
      EXPECT_EQ(found.chunk_size, Elements(model.chunk_size));
    }
    EXPECT_NEAR(100 * found.packing.waste_fraction(), model.truth, 0.0051);
  }
}

TEST(ElixirRuleTest, BuysItsWasteForLlama3With70BWithLargeChunks) {
  const RuleResult found =
      ApplyElixirRule(AsRuleParams(Llama3Of70B()), {.world = 8});
  // 4.8 GiB in 2 bytes an element; the original's came to 4.9 of 10^9.
  EXPECT_GT(*found.chunk_size * 2, Elements(int64_t{9} << 29));
}

TEST(ElixirRuleTest, ClaimsOverWhatItPacks) {
  const RuleResult found =
      ApplyElixirRule(AsRuleParams(Llama7B()), {.world = 8});
  EXPECT_EQ(found.claimed_waste, found.packing.waste());
  EXPECT_DOUBLE_EQ(
      found.claimed_fraction,
      static_cast<double>(found.claimed_waste.count()) / 6738415616.0);
}

TEST(ElixirRuleTest, GivesSharedParametersChunksOfTheirOwn) {
  std::vector<RuleParam> params = RuleParamsOf({1001, 20, 30});
  params[0].shared = true;
  const RuleResult found = ApplyElixirRule(params, {.world = 8});
  EXPECT_EQ(found.chunk_size, Elements(56));
  EXPECT_EQ(found.ignored, Elements(1001));
  ASSERT_EQ(found.packing.chunks.size(), 2u);
  EXPECT_TRUE(found.packing.chunks[0].own);
  EXPECT_EQ(found.packing.chunks[0].size, Elements(1008));
  EXPECT_EQ(found.packing.chunks[1].size, Elements(56));
  EXPECT_EQ(found.packing.chunks[1].used, Elements(50));
}

TEST(ElixirRuleTest, LeavesFrozenParametersOut) {
  std::vector<RuleParam> params = RuleParamsOf({1001, 20, 30});
  params[0].trainable = false;
  const RuleResult found = ApplyElixirRule(params, {.world = 1});
  EXPECT_EQ(found.chunk_size, Elements(50));
  EXPECT_EQ(found.unpacked, Elements(1001));
  EXPECT_EQ(found.packing.payload, Elements(50));
}

TEST(ElixirRuleTest, SaysWhyItFindsNothing) {
  std::vector<RuleParam> params = RuleParamsOf({10});
  params[0].shared = true;
  const RuleResult found = ApplyElixirRule(params, {.world = 1});
  EXPECT_FALSE(found.chunk_size);
  EXPECT_NE(found.failure.find("one name only"), std::string::npos);
  EXPECT_TRUE(found.packing.chunks.empty());
}

}  // namespace
}  // namespace castor
