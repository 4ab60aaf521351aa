// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "tools/models/families/config_values.h"
#include "tools/models/families/expert_layout.h"
#include "tools/models/families/family_model.h"
#include "tools/models/model_list.h"
#include "tools/models/param_order.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// wte, wpe, twelve of layer 0, ln_f weight and bias; lm_head is tied.
FamilyModel TinyGpt2() {
  return *BuildFamilyModel(*ConfigValues::Parse(
      R"({"model_type":"gpt2","n_embd":8,"n_layer":1,"n_head":2,
          "n_positions":4,"vocab_size":10})"));
}

std::vector<std::string> Names(const ModelList& list) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : list.params) names.push_back(spec.name);
  return names;
}

TEST(FamilyOrderTest, SortsNamesWithAndWithoutThePrefix) {
  const FamilyModel family = TinyGpt2();
  ModelList whole;
  whole.params.assign(family.params.rbegin(), family.params.rend());
  EXPECT_TRUE(ApplyFamilyOrder(family, whole));
  EXPECT_THAT(whole.notes, IsEmpty());
  ModelList expected;
  expected.params = family.params;
  EXPECT_EQ(Names(whole), Names(expected));

  // As GPT-2 lies on the hub.
  ModelList bare;
  for (ParamSpec spec : whole.params) {
    spec.name = spec.name.substr(std::string("transformer.").size());
    bare.params.insert(bare.params.begin(), spec);
  }
  EXPECT_TRUE(ApplyFamilyOrder(family, bare));
  EXPECT_THAT(bare.notes, IsEmpty());
  EXPECT_EQ(bare.params.front().name, "wte.weight");
  EXPECT_EQ(bare.params.back().name, "ln_f.bias");
}

TEST(FamilyOrderTest, DropsWhatIsTied) {
  const FamilyModel family = TinyGpt2();
  for (const bool bare : {false, true}) {
    ModelList list;
    list.params = family.params;
    list.params.push_back({"lm_head.weight", {10, 8}, DType::kF32});
    if (bare) {
      for (ParamSpec& spec : list.params) {
        if (spec.name.starts_with(family.base_prefix)) {
          spec.name = spec.name.substr(family.base_prefix.size());
        }
      }
    }
    DropAbsent(family, list);
    EXPECT_EQ(list.params.size(), family.params.size());
    ASSERT_EQ(list.dropped.size(), 1u);
    EXPECT_EQ(list.dropped[0].name, "lm_head.weight");
    EXPECT_EQ(list.dropped[0].reason, "tied to transformer.wte.weight");
  }
}

TEST(FamilyOrderTest, KeepsATiedNameOfAnotherShape) {
  const FamilyModel family = TinyGpt2();
  ModelList list;
  list.params = family.params;
  list.params.push_back({"lm_head.weight", {11, 8}, DType::kF32});
  DropAbsent(family, list);
  EXPECT_TRUE(ApplyFamilyOrder(family, list));
  EXPECT_THAT(list.dropped, IsEmpty());
  EXPECT_THAT(list.notes,
              ElementsAre(HasSubstr("does not know \"lm_head.weight\"")));
}

// Some writers keep the head and leave the embedding out; of several names of
// one parameter the first then stands for it.
TEST(FamilyOrderTest, KeepsATiedNameThatStandsAlone) {
  const FamilyModel family = TinyGpt2();
  ModelList list;
  list.params = {family.params.begin() + 1, family.params.end()};
  list.params.push_back({"lm_head.weight", {10, 8}, DType::kF32});
  DropAbsent(family, list);
  EXPECT_EQ(list.params.size(), family.params.size());
  EXPECT_THAT(list.dropped, IsEmpty());
}

TEST(FamilyOrderTest, PlacesUnknownTensorsLastInNaturalOrder) {
  const FamilyModel family = TinyGpt2();
  ModelList list;
  list.params = {{"adapter.10", {1}, DType::kF32},
                 {"transformer.wpe.weight", {4, 8}, DType::kF32},
                 {"adapter.9", {1}, DType::kF32},
                 {"transformer.wte.weight", {12, 8}, DType::kF32}};
  EXPECT_TRUE(ApplyFamilyOrder(family, list));
  EXPECT_THAT(Names(list),
              ElementsAre("transformer.wte.weight", "transformer.wpe.weight",
                          "adapter.9", "adapter.10"));
  EXPECT_THAT(
      list.notes,
      ElementsAre(HasSubstr("\"adapter.10\" and 1 more: placed last"),
                  HasSubstr("does not hold: \"transformer.h.0.ln_1.weight\" "
                            "and 13 more"),
                  HasSubstr("\"transformer.wte.weight\" is [12,8] in the file "
                            "and [10,8] in the config")));
}

TEST(FamilyOrderTest, KnowsOtherVersionsSpellings) {
  const ConfigValues neox = *ConfigValues::Parse(
      R"({"model_type":"gpt_neox","hidden_size":8,"num_attention_heads":2,
          "num_hidden_layers":0,"vocab_size":10})");
  const FamilyModel family = *BuildFamilyModel(neox);
  ModelList list;
  list.params = {{"embed_out.weight", {10, 8}},
                 {"gpt_neox.final_layer_norm.bias", {8}},
                 {"gpt_neox.final_layer_norm.weight", {8}},
                 {"gpt_neox.embed_in.weight", {10, 8}}};
  EXPECT_TRUE(ApplyFamilyOrder(family, list));
  EXPECT_THAT(list.notes, IsEmpty());
  EXPECT_THAT(Names(list), ElementsAre("gpt_neox.embed_in.weight",
                                       "gpt_neox.final_layer_norm.weight",
                                       "gpt_neox.final_layer_norm.bias",
                                       "embed_out.weight"));
}

// Mixtral's modules have other names in files than in memory since
// Transformers v5; either list is found in either.
TEST(FamilyOrderTest, FindsMixtralsExpertsInEitherSpelling) {
  const ConfigValues config = *ConfigValues::Parse(
      R"({"model_type":"mixtral","hidden_size":8,"num_attention_heads":2,
          "num_key_value_heads":2,"num_hidden_layers":1,"vocab_size":10,
          "num_local_experts":2,"intermediate_size":12})");
  for (const ExpertLayout layout :
       {ExpertLayout::kFused, ExpertLayout::kPerExpert}) {
    const FamilyModel family = *BuildFamilyModel(config, layout);
    for (const ExpertLayout other :
         {ExpertLayout::kFused, ExpertLayout::kPerExpert}) {
      ModelList list;
      list.params = BuildFamilyModel(config, other)->params;
      ASSERT_TRUE(ApplyExpertLayout(layout, list.params).ok());
      std::reverse(list.params.begin(), list.params.end());
      EXPECT_TRUE(ApplyFamilyOrder(family, list));
      EXPECT_THAT(list.notes, IsEmpty());
      ASSERT_EQ(list.params.size(), family.params.size());
      for (size_t i = 0; i < list.params.size(); ++i) {
        EXPECT_EQ(list.params[i].shape, family.params[i].shape)
            << list.params[i].name << " for " << family.params[i].name;
      }
    }
  }
}

TEST(FamilyOrderTest, DropsWhatTheReferenceCodeLeavesOut) {
  const FamilyModel family = *BuildFamilyModel(*ConfigValues::Parse(
      R"({"model_type":"deepseek_v3","num_hidden_layers":1,
          "n_routed_experts":2,"num_nextn_predict_layers":1})"));
  ModelList list;
  list.params = family.params;
  list.params.push_back({"model.layers.1.eh_proj.weight", {4, 8}});
  EXPECT_TRUE(ApplyFamilyOrder(family, list));
  EXPECT_THAT(list.notes, IsEmpty());
  EXPECT_EQ(list.params.size(), family.params.size());
  ASSERT_EQ(list.dropped.size(), 1u);
  EXPECT_EQ(list.dropped[0].reason,
            "in model.layers.1.*, which the model does not have");
}

TEST(FamilyOrderTest, LeavesAListOfStrangersAlone) {
  ModelList list;
  list.params = {{"b", {1}, DType::kF32}, {"a", {1}, DType::kF32}};
  EXPECT_FALSE(ApplyFamilyOrder(TinyGpt2(), list));
  EXPECT_THAT(Names(list), ElementsAre("b", "a"));
  EXPECT_THAT(list.notes, IsEmpty());
}

}  // namespace
}  // namespace castor
