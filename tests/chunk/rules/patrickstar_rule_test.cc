// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/rules/patrickstar_rule.h"

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "tests/chunk/rules/rule_lists.h"

namespace castor {
namespace {

constexpr int64_t kMi = int64_t{1} << 20;

// Sizes of 100, 80 and 60 elements.
PatrickStarRuleOptions Small() {
  PatrickStarRuleOptions options;
  options.largest = Elements(100);
  options.smallest = Elements(60);
  options.step = Elements(20);
  return options;
}

TEST(PatrickStarRuleTest, TakesTheSizeOfBestUtilization) {
  const RuleResult found =
      ApplyPatrickStarRule(RuleParamsOf({40, 40, 40, 40}), Small());
  EXPECT_EQ(found.chunk_size, Elements(80));
  EXPECT_EQ(found.claimed_waste, Elements(0));
  EXPECT_EQ(found.packing.chunks.size(), 2u);
}

TEST(PatrickStarRuleTest, TakesTheFirstOfEqualsWhichIsTheLargest) {
  const RuleResult found =
      ApplyPatrickStarRule(RuleParamsOf({60, 40, 60, 40, 60}), Small());
  // Three chunks of 100, or five of 60.
  EXPECT_EQ(found.chunk_size, Elements(100));
  EXPECT_EQ(found.claimed_waste, Elements(40));
}

TEST(PatrickStarRuleTest, PacksTheParametersOfAModuleTogether) {
  std::vector<RuleParam> params = RuleParamsOf({50, 30, 40, 10});
  params[2].module = params[1].module;  // 30 + 40 do not fit beside 50
  PatrickStarRuleOptions options = Small();
  options.smallest = options.largest;
  const RuleResult found = ApplyPatrickStarRule(params, options);
  ASSERT_EQ(found.packing.chunks.size(), 2u);
  EXPECT_EQ(found.packing.chunks[0].used, Elements(50));
  EXPECT_EQ(found.packing.chunks[1].used, Elements(80));
  EXPECT_EQ(found.packing.chunks[1].params, 3);
}

TEST(PatrickStarRuleTest, AddsChunksUpToAMultipleOfTheRanks) {
  PatrickStarRuleOptions options = Small();
  options.world = 4;
  const RuleResult found =
      ApplyPatrickStarRule(RuleParamsOf({80, 80, 80, 80, 80}), options);
  EXPECT_EQ(found.chunk_size, Elements(80));
  EXPECT_EQ(found.claimed_waste, Elements(0));  // as it was tried, on one rank
  EXPECT_EQ(found.packing.chunks.size(), 8u);
  EXPECT_EQ(found.packing.waste(), Elements(240));
}

TEST(PatrickStarRuleTest, TriesTheScriptsEightSizes) {
  // Of 312, 280, 248, 216, 184, 152, 120 and 88, 216 holds two of 100 best.
  std::vector<RuleParam> params;
  for (int i = 0; i < 4; ++i) {
    params.push_back({.size = Elements(100 * kMi), .module = i});
  }
  const RuleResult found = ApplyPatrickStarRule(params, {});
  EXPECT_EQ(found.chunk_size, Elements(216 * kMi));
  // Steps of 32 from 312 end at 88, above the 64 that bounds them.
  params = {{.size = Elements(56 * kMi)}};
  EXPECT_EQ(ApplyPatrickStarRule(params, {}).chunk_size, Elements(88 * kMi));
}

TEST(PatrickStarRuleTest, SaysThatAModuleIsTooLarge) {
  const RuleResult found =
      ApplyPatrickStarRule(AsRuleParams(Llama3With8B()), {.world = 8});
  EXPECT_FALSE(found.chunk_size);
  EXPECT_NE(found.failure.find("525336576"), std::string::npos)
      << found.failure;
}

TEST(PatrickStarRuleTest, SaysThatTheAssumedMachineIsTooSmall) {
  const RuleResult found =
      ApplyPatrickStarRule(AsRuleParams(Llama2With70B()), {.world = 8});
  EXPECT_FALSE(found.chunk_size);
  EXPECT_NE(found.failure.find("14 bytes"), std::string::npos) << found.failure;
  EXPECT_TRUE(found.packing.chunks.empty());
}

}  // namespace
}  // namespace castor
