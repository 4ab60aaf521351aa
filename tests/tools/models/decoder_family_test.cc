// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "tools/models/config_values.h"
#include "tools/models/family_model.h"
#include "tools/models/family_parts.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ConfigValues Parsed(const std::string& json) {
  Result<ConfigValues> config = ConfigValues::Parse(json);
  CASTOR_CHECK(config.ok());
  return *std::move(config);
}

std::vector<std::string> Names(const FamilyModel& model) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : model.params) names.push_back(spec.name);
  return names;
}

constexpr DecoderDefaults kDefaults = {.vocab = 10,
                                       .width = 8,
                                       .inner = 12,
                                       .layers = 2,
                                       .attention = {.heads = 4},
                                       .tied = true};

TEST(DecoderFamilyTest, TakesKeysBeforeDefaults) {
  const auto none = ReadDecoder(Parsed("{}"), kDefaults);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->vocab, 10);
  EXPECT_EQ(none->width, 8);
  EXPECT_EQ(none->inner, 12);
  EXPECT_EQ(none->layers, 2);
  EXPECT_EQ(none->attention.head_dim, 2);
  EXPECT_TRUE(none->tied);
  const auto all = ReadDecoder(
      Parsed(R"({"vocab_size":20,"hidden_size":16,"intermediate_size":24,
                 "num_hidden_layers":0,"num_attention_heads":2,
                 "tie_word_embeddings":false})"),
      kDefaults);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->vocab, 20);
  EXPECT_EQ(all->width, 16);
  EXPECT_EQ(all->inner, 24);
  EXPECT_EQ(all->layers, 0);
  EXPECT_EQ(all->attention.head_dim, 8);
  EXPECT_FALSE(all->tied);
}

TEST(DecoderFamilyTest, PutsAttentionBeforeMlpAndNorms) {
  const ConfigValues config = Parsed("{}");
  DecoderSizes sizes = *ReadDecoder(config, kDefaults);
  sizes.layers = 1;
  const DecoderParts parts = {
      .attention =
          [](int64_t layer, const std::string& prefix, ParamWriter& writer) {
            writer.Add(prefix + "a" + std::to_string(layer), {1});
          },
      .mlp = [](int64_t, const std::string& prefix,
                ParamWriter& writer) { writer.Add(prefix + "m", {1}); },
      .norms = {"x", "y"}};
  const FamilyModel tied = BuildDecoder({.config = config}, sizes, parts);
  EXPECT_THAT(Names(tied),
              ElementsAre("model.embed_tokens.weight", "model.layers.0.a0",
                          "model.layers.0.m", "model.layers.0.x.weight",
                          "model.layers.0.y.weight", "model.norm.weight"));
  ASSERT_EQ(tied.tied.size(), 1u);
  EXPECT_EQ(tied.tied[0].name, "lm_head.weight");
  EXPECT_EQ(tied.tied[0].to, "model.embed_tokens.weight");
  sizes.tied = false;
  const FamilyModel untied = BuildDecoder({.config = config}, sizes, parts);
  EXPECT_EQ(untied.params.back().name, "lm_head.weight");
  EXPECT_THAT(untied.params.back().shape, ElementsAre(10, 8));
  EXPECT_THAT(untied.tied, IsEmpty());
}

TEST(DecoderFamilyTest, SharesKeysAmongHeads) {
  FamilyModel model;
  ParamWriter writer(DType::kF32, &model.params);
  AddAttention("s.", 8, {.heads = 4, .key_value_heads = 2, .head_dim = 3},
               {.inputs = true}, writer);
  EXPECT_THAT(Names(model),
              ElementsAre("s.q_proj.weight", "s.q_proj.bias", "s.k_proj.weight",
                          "s.k_proj.bias", "s.v_proj.weight", "s.v_proj.bias",
                          "s.o_proj.weight"));
  EXPECT_THAT(model.params[0].shape, ElementsAre(12, 8));
  EXPECT_THAT(model.params[2].shape, ElementsAre(6, 8));
  EXPECT_THAT(model.params[6].shape, ElementsAre(8, 12));
}

}  // namespace
}  // namespace castor
