// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/family_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "tests/tools/models/param_lines.h"
#include "tools/models/config_values.h"
#include "tools/models/expert_layout.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ConfigValues Parsed(const std::string& json) {
  Result<ConfigValues> config = ConfigValues::Parse(json);
  CASTOR_CHECK(config.ok());
  return *std::move(config);
}

void ExpectRefused(const Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), ErrorCode::kMalformed);
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(FamilyPartsTest, ReadsLayersAndHeadsWithinTheirBounds) {
  const ConfigValues config =
      Parsed(R"({"n":10000,"more":10001,"heads":65536,"many":65537,"zero":0})");
  EXPECT_EQ(*ReadLayers(config, "n", "n", 1), 10'000);
  EXPECT_EQ(*ReadLayers(config, "m", "n", 1), 10'000);
  EXPECT_EQ(*ReadLayers(config, "m", "m", 7), 7);
  EXPECT_EQ(*ReadLayers(config, "zero", "zero", 7), 0);
  ExpectRefused(ReadLayers(config, "more", "more", 1).status(),
                "more is 10001; more than 10000 is refused");
  EXPECT_EQ(*ReadHeads(config, "heads", "heads", 1), 65'536);
  ExpectRefused(ReadHeads(config, "many", "many", 1).status(),
                "many is 65537; more than 65536 is refused");
  ExpectRefused(ReadHeads(config, "zero", "zero", 1).status(), "\"zero\" is 0");
}

// 65,536 experts are fine in five layers, not in six.
TEST(FamilyPartsTest, BoundsTheExpertsOfAllLayers) {
  const ConfigValues config = Parsed(R"({"e":65536,"many":65537,"none":0})");
  EXPECT_EQ(*ReadExperts(config, "e", "e", 1, 1, 5), 65'536);
  ExpectRefused(ReadExperts(config, "e", "e", 1, 1, 6).status(),
                "e is 65536, and with 6 layers that makes more than 1000000");
  ExpectRefused(ReadExperts(config, "many", "many", 1, 1, 1).status(),
                "many is 65537; more than 65536");
  EXPECT_EQ(*ReadExperts(config, "none", "none", 1, 0, 5), 0);
  EXPECT_FALSE(ReadExperts(config, "none", "none", 1, 1, 5).ok());
}

TEST(FamilyPartsTest, DerivesWhatTheConfigLeavesOut) {
  const auto plain = ReadAttention(Parsed("{}"), 64, {.heads = 8});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->heads, 8);
  EXPECT_EQ(plain->key_value_heads, 8);
  EXPECT_EQ(plain->head_dim, 8);

  const AttentionSizes defaults = {
      .heads = 8, .key_value_heads = 2, .head_dim = 16};
  const auto given = ReadAttention(Parsed("{}"), 60, defaults);
  EXPECT_EQ(given->key_value_heads, 2);
  EXPECT_EQ(given->head_dim, 16);
  const auto null = ReadAttention(
      Parsed(R"({"num_key_value_heads":null,"head_dim":null})"), 64, defaults);
  EXPECT_EQ(null->key_value_heads, 8);
  EXPECT_EQ(null->head_dim, 8);
  const auto own =
      ReadAttention(Parsed(R"({"num_attention_heads":6,"num_key_value_heads":3,
                 "head_dim":5})"),
                    64, defaults);
  EXPECT_EQ(own->heads * 100 + own->key_value_heads * 10 + own->head_dim, 635);
}

TEST(FamilyPartsTest, RefusesHeadsThatDoNotDivide) {
  ExpectRefused(ReadAttention(Parsed("{}"), 60, {.heads = 8}).status(),
                "hidden_size 60 is not a multiple of num_attention_heads 8");
  ExpectRefused(
      ReadAttention(Parsed(R"({"num_key_value_heads":3})"), 64, {.heads = 8})
          .status(),
      "num_attention_heads 8 is not a multiple of "
      "num_key_value_heads 3");
  EXPECT_TRUE(RefuseUnevenHeads("w", 64, "h", 8).ok());
  ExpectRefused(RefuseUnevenHeads("w", 60, "h", 8),
                "w 60 is not a multiple of h 8: no such attention exists");
}

// What is written in one layout is what the other is rewritten to.
TEST(ParamWriterTest, WritesExpertsInBothLayouts) {
  const ExpertSizes sizes = {.count = 2, .width = 4, .inner = 6};
  for (const ExpertNames names :
       {ExpertNames::kProjections, ExpertNames::kNumbers}) {
    std::vector<ParamSpec> fused;
    ParamWriter(DType::kF32, &fused)
        .Experts("x.experts", sizes, ExpertLayout::kFused, names);
    EXPECT_THAT(ParamLines(fused), ElementsAre("x.experts.gate_up_proj 2,12,4",
                                               "x.experts.down_proj 2,4,6"));
    std::vector<ParamSpec> single;
    ParamWriter(DType::kBF16, &single)
        .Experts("x.experts", sizes, ExpertLayout::kPerExpert, names);
    ASSERT_EQ(single.size(), 6u);
    EXPECT_EQ(single[0].dtype, DType::kBF16);
    EXPECT_EQ(ParamLines(single)[1], names == ExpertNames::kProjections
                                         ? "x.experts.0.up_proj.weight 6,4"
                                         : "x.experts.0.w2.weight 4,6");
    ASSERT_TRUE(ApplyExpertLayout(ExpertLayout::kFused, single).ok());
    EXPECT_EQ(ParamLines(single), ParamLines(fused));
  }
}

}  // namespace
}  // namespace castor
