// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/families/family_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "chunk/base/status.h"

namespace castor {
namespace {

int64_t Names(std::string_view name, std::optional<int64_t> element) {
  if (element) return name == "list" && *element == 5 ? 1 : 0;
  if (name == "most") return INT64_MAX;
  return static_cast<int64_t>(name.size());  // "three" is 5
}

TEST(FamilyTableTest, EvaluatesWithTheUsualPrecedence) {
  const struct {
    const char* expression;
    int64_t value;
  } cases[] = {{"7", 7},           {"a_b1", 4},      {"2+3*4", 14},
               {"(2+3)*4", 20},    {"20-3-4", 13},   {"17/5%2", 1},
               {"1+1==2", 1},      {"three!=5", 0},  {"2<3&3<2", 0},
               {"1|0&0", 1},       {"0|!0", 1},      {"!three", 0},
               {"list[three]", 1}, {"list[1+3]", 0}, {"!list[4]&1", 1}};
  for (const auto& each : cases) {
    const Result<int64_t> value = EvaluateFamily(each.expression, Names);
    ASSERT_TRUE(value.ok()) << each.expression;
    EXPECT_EQ(*value, each.value) << each.expression;
  }
}

TEST(FamilyTableTest, RefusesNumbersThatDoNotFit) {
  for (const char* const expression : {"most+1", "2*most", "0-most-2"}) {
    EXPECT_EQ(EvaluateFamily(expression, Names).status().code(),
              ErrorCode::kMalformed)
        << expression;
  }
}

TEST(FamilyTableTest, LinesBelowAreThoseIndentedMore) {
  const FamilyLine* const part = FindFamilyLine("part", "two_norms");
  ASSERT_NE(part, nullptr);
  ASSERT_EQ(part->below.size(), 1u);
  EXPECT_THAT(
      part->below[0].words,
      testing::ElementsAre("norm", "input_layernorm,post_attention_layernorm",
                           "hidden_size"));
  EXPECT_EQ(FindFamilyLine("family", "two_norms"), nullptr);
  for (const FamilyLine& line : FamilyLines()) {
    EXPECT_TRUE(line.words[0] == "family" || line.words[0] == "part");
    EXPECT_FALSE(line.below.empty()) << line.words[1];
  }
}

}  // namespace
}  // namespace castor
