// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chunk/base/json_value.h"
#include "tools/rules/compatibility_rule.h"
#include "tests/tools/commands/search/made_report.h"

namespace castor {
namespace {

using testing::HasSubstr;

// Large enough for the rules' own limits.
std::vector<ParamSpec> Large() {
  std::vector<ParamSpec> params;
  for (int i = 0; i < 40; ++i) {
    params.push_back({"l." + std::to_string(i) + ".w",
                      {9'000'000 + i % 3 * 100'000},
                      DType::kBF16});
  }
  return params;
}

TEST(SearchRulesTest, PutsEachRuleBesideWhatItCostsHere) {
  SearchReport report = MadeReport(Large());
  report.rules = ApplyRules(report, kCompatibilityRules).value();
  ASSERT_EQ(report.rules.size(), 3u);
  for (const RuleReport& rule : report.rules) {
    ASSERT_TRUE(rule.rule.chunk_size.has_value());
    ASSERT_EQ(rule.in_castor.size(), 1u);
    EXPECT_GE(rule.in_castor[0].chunk_size, *rule.rule.chunk_size);
    const JsonValue json = RuleJson(rule.rule);
    EXPECT_EQ(json["chunk_elements"], rule.rule.chunk_size->count());
    EXPECT_EQ(json["waste_elements"], rule.rule.packing.waste().count());
    EXPECT_EQ(json["claimed_waste_fraction"], rule.rule.claimed_fraction);
  }
  const std::string text = RulesText(report);
  EXPECT_THAT(text, HasSubstr("Gemini      its rule picks "));
  EXPECT_THAT(text, HasSubstr("Elixir      its rule picks "));
  EXPECT_THAT(text, HasSubstr("Castor's best "));
}

TEST(SearchRulesTest, SaysWhyARulePicksNothing) {
  SearchReport report = MadeReport(Irregular());
  RuleReport rule;
  rule.rule.rule = CompatibilityRule::kPatrickStar;
  rule.rule.failure = "no size holds a module";
  report.rules = {rule};
  EXPECT_THAT(RulesText(report),
              HasSubstr("PatrickStar its rule picks no size: no size holds a "
                        "module"));
  EXPECT_TRUE(RuleJson(rule.rule)["chunk_elements"].is_null());
  EXPECT_EQ(RuleJson(rule.rule)["failure"], "no size holds a module");
}

TEST(SearchRulesTest, HasNothingToSayOfAnEmptyModel) {
  EXPECT_TRUE(ApplyRules(MadeReport({}), kCompatibilityRules).value().empty());
}

}  // namespace
}  // namespace castor
