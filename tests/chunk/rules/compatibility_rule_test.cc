// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/rules/compatibility_rule.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/search_result.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chunk/rules/rule_lists.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;

ParamSpec Param(std::string name, int64_t size, DType dtype = DType::kBF16,
                bool trainable = true) {
  return {std::move(name), {size}, dtype, trainable};
}

TEST(CompatibilityRuleTest, EveryRuleHasANameThatIsReadBack) {
  for (const CompatibilityRule rule : kCompatibilityRules) {
    EXPECT_EQ(ParseCompatibilityRule(CompatibilityRuleName(rule)), rule);
  }
  EXPECT_EQ(ParseCompatibilityRule("Gemini"), std::nullopt);
  EXPECT_EQ(ParseCompatibilityRule(""), std::nullopt);
}

TEST(CompatibilityRuleTest, AppliesTheRuleThatIsNamed) {
  RuleOptions options;
  options.world = 8;
  for (const CompatibilityRule rule : kCompatibilityRules) {
    const RuleResult found = ApplyRule(rule, Llama7B(), options).value();
    EXPECT_EQ(found.rule, rule);
    ASSERT_TRUE(found.chunk_size);
    EXPECT_EQ(*found.chunk_size % Elements(8), Elements(0));
    EXPECT_EQ(found.packing.payload, Elements(6738415616));
  }
}

TEST(CompatibilityRuleTest, TellsModulesByTheirNames) {
  const std::vector<ParamSpec> params = {
      Param("a.weight", 3), Param("a.bias", 1), Param("b.weight", 3),
      Param("scale", 1), Param("a.weight2", 2)};
  const std::vector<RuleParam> seen = RuleParams(params, {}).value();
  EXPECT_EQ(seen[0].module, seen[1].module);
  EXPECT_NE(seen[1].module, seen[2].module);
  EXPECT_NE(seen[2].module, seen[3].module);
  EXPECT_NE(seen[3].module, seen[4].module);
  EXPECT_NE(seen[0].module, seen[4].module);  // not a neighbour
}

TEST(CompatibilityRuleTest, MarksWhatIsSharedAndWhatIsFrozen) {
  const std::vector<ParamSpec> params = {
      Param("embed.weight", 3),
      Param("frozen.weight", 1, DType::kF32, /*trainable=*/false)};
  const std::vector<std::string> shared = {"embed.weight"};
  const std::vector<RuleParam> seen = RuleParams(params, shared).value();
  EXPECT_TRUE(seen[0].shared);
  EXPECT_TRUE(seen[0].trainable);
  EXPECT_FALSE(seen[1].shared);
  EXPECT_FALSE(seen[1].trainable);
}

TEST(CompatibilityRuleTest, RefusesWhatNoRuleCanDo) {
  for (const CompatibilityRule rule : kCompatibilityRules) {
    EXPECT_THAT(ApplyRule(rule, {}, {}),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("no element")));
    const std::vector<ParamSpec> huge = {Param("a", int64_t{1} << 54),
                                         Param("b", (int64_t{1} << 54) + 1)};
    EXPECT_THAT(ApplyRule(rule, huge, {}),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("more than")));
    const std::vector<ParamSpec> negative = {Param("a", -1)};
    EXPECT_THAT(ApplyRule(rule, negative, {}),
                StatusIs(ErrorCode::kMalformed, HasSubstr("'a'")));
    RuleOptions options;
    options.world = 0;
    EXPECT_THAT(ApplyRule(rule, Gpt2Small(), options),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("world")));
  }
}

TEST(CompatibilityRuleTest, RefusesOptionsOutOfRange) {
  const auto refuses = [](const RuleOptions& options, std::string_view what) {
    EXPECT_THAT(
        ApplyRule(CompatibilityRule::kGemini, Gpt2Small(), options),
        StatusIs(ErrorCode::kInvalidArgument, HasSubstr(std::string(what))));
  };
  RuleOptions options;
  options.gemini.step = Elements(0);
  refuses(options, "step");
  options = {};
  options.gemini.range = Elements(-1);
  refuses(options, "range");
  options = {};
  options.patrickstar.smallest = options.patrickstar.largest + Elements(1);
  refuses(options, "largest");
  options = {};
  options.elixir.element_bytes = 9;
  refuses(options, "bytes");
}

TEST(CompatibilityRuleTest, SurvivesTheLargestListItAccepts) {
  RuleOptions options;
  options.world = 1 << 20;
  const std::vector<ParamSpec> params = {
      Param("a.weight", (int64_t{1} << 55) - 3), Param("b.weight", 1),
      Param("c.weight", 2)};
  for (const CompatibilityRule rule : kCompatibilityRules) {
    const Result<RuleResult> found = ApplyRule(rule, params, options);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->chunk_size.has_value(),
              rule != CompatibilityRule::kPatrickStar);
  }
}

TEST(CompatibilityRuleTest, PacksTheSizeInCastorAsWell) {
  const std::vector<ParamSpec> params = {Param("a", 1000), Param("b", 3000),
                                         Param("c", 500, DType::kF32),
                                         Param("d", 600)};
  const PackOptions pack{.world = 2};
  const std::vector<ChunkSizeCandidate> rows =
      RuleInCastor(CompatibilityRule::kGemini, Elements(1601), params, pack)
          .value();
  ASSERT_EQ(rows.size(), 2u);  // one for each type
  EXPECT_EQ(rows[0].mode, SearchMode::kUniform);
  EXPECT_EQ(rows[0].chunk_size, Elements(1792));
  EXPECT_EQ(rows[0].chunk_bytes, Bytes(3584));
  EXPECT_EQ(rows[0].chunks, 3);  // b in between closes the first
  EXPECT_EQ(rows[0].oversize_chunks, 1);
  EXPECT_EQ(rows[0].allocated, Elements(1792 + 3072 + 1792));
  EXPECT_EQ(rows[0].waste, Elements(1792 + 3072 + 1792 - 4600));
  EXPECT_EQ(rows[0].waste_bytes, Bytes(2 * (1792 + 3072 + 1792 - 4600)));
  EXPECT_EQ(rows[0].gathered_bytes, Bytes(2 * (3 * 1792 + 3072)));
  EXPECT_EQ(rows[0].reason, "the size of gemini");
  EXPECT_EQ(rows[1].chunks, 1);
  EXPECT_EQ(rows[1].allocated, Elements(1792));
  EXPECT_EQ(rows[1].chunk_bytes, Bytes(7168));
}

TEST(CompatibilityRuleTest, OneOversizeClassCountsOnce) {
  const std::vector<ParamSpec> params = {Param("a", 300), Param("b", 290),
                                         Param("c", 500)};
  const std::vector<ChunkSizeCandidate> rows =
      RuleInCastor(CompatibilityRule::kElixir, Elements(128), params, {},
                   /*gathered_slots=*/5)
          .value();
  EXPECT_EQ(rows[0].oversize_chunks, 3);
  EXPECT_EQ(rows[0].gathered_bytes, Bytes(2 * (5 * 128 + 384 + 512)));
}

TEST(CompatibilityRuleTest, RefusesASizeThatOverflowsInCastor) {
  const std::vector<ParamSpec> params = {Param("a", 10, DType::kF64)};
  EXPECT_THAT(RuleInCastor(CompatibilityRule::kGemini, kMaxRuleElements, params,
                           {.world = 1 << 20}),
              StatusIs(ErrorCode::kInvalidArgument));
}

}  // namespace
}  // namespace castor
