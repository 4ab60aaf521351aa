// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/models/build_family.h"
#include "tools/models/family_builders.h"
#include "tools/models/family_model.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

using testing::ElementsAre;

// One layer of Llama's shape, width 8, four heads of two, inner 12.
constexpr char kDecoder[] =
    R"({"vocab_size":10,"hidden_size":8,"intermediate_size":12,
        "num_hidden_layers":1,"num_attention_heads":4,
        "num_key_value_heads":2)";

std::string Decoder(const std::string& more = "") {
  return kDecoder + (more.empty() ? "" : "," + more) + "}";
}

TEST(DecoderBuildersTest, GivesQwen2BiasesBeforeTheOutput) {
  EXPECT_THAT(
      Lines(Build(BuildQwen2, Decoder()), "model.layers.0.self_attn."),
      ElementsAre("q_proj.weight 8,8", "q_proj.bias 8", "k_proj.weight 4,8",
                  "k_proj.bias 4", "v_proj.weight 4,8", "v_proj.bias 4",
                  "o_proj.weight 8,8"));
}

TEST(DecoderBuildersTest, GivesQwen3NormsOverTheHeads) {
  EXPECT_THAT(Lines(Build(BuildQwen3, Decoder()), "model.layers.0.self_attn."),
              ElementsAre("q_proj.weight 512,8", "k_proj.weight 256,8",
                          "v_proj.weight 256,8", "o_proj.weight 8,512",
                          "q_norm.weight 128", "k_norm.weight 128"));
}

TEST(DecoderBuildersTest, GivesGemma2FourNormsAndATiedHead) {
  const FamilyModel model = Build(BuildGemma2, Decoder());
  const std::vector<std::string> layer = Lines(model, "model.layers.0.");
  ASSERT_EQ(layer.size(), 11u);
  EXPECT_EQ(layer[0], "self_attn.q_proj.weight 1024,8");
  EXPECT_THAT(std::vector<std::string>(layer.begin() + 7, layer.end()),
              ElementsAre("input_layernorm.weight 8",
                          "post_attention_layernorm.weight 8",
                          "pre_feedforward_layernorm.weight 8",
                          "post_feedforward_layernorm.weight 8"));
  EXPECT_EQ(model.params.back().name, "model.norm.weight");
  EXPECT_EQ(model.tied.at(0).to, "model.embed_tokens.weight");
}

TEST(DecoderBuildersTest, NamesMixtralsBlockByLayout) {
  const std::string config = Decoder(R"("num_local_experts":2)");
  EXPECT_THAT(Lines(Build(BuildMixtral, config), "model.layers.0.mlp."),
              ElementsAre("gate.weight 2,8", "experts.gate_up_proj 2,24,8",
                          "experts.down_proj 2,8,12"));
  EXPECT_THAT(
      Lines(Build(BuildMixtral, config, ExpertLayout::kPerExpert),
            "model.layers.0.block_sparse_moe."),
      ElementsAre("gate.weight 2,8", "experts.0.w1.weight 12,8",
                  "experts.0.w2.weight 8,12", "experts.0.w3.weight 12,8",
                  "experts.1.w1.weight 12,8", "experts.1.w2.weight 8,12",
                  "experts.1.w3.weight 12,8"));
}

TEST(DecoderBuildersTest, GivesQwen2MoeASharedExpert) {
  const std::string config = Decoder(
      R"("num_experts":2,"moe_intermediate_size":6,
         "shared_expert_intermediate_size":16)");
  EXPECT_THAT(Lines(Build(BuildQwen2Moe, config), "model.layers.0.mlp."),
              ElementsAre("gate.weight 2,8", "experts.gate_up_proj 2,12,8",
                          "experts.down_proj 2,8,6",
                          "shared_expert.gate_proj.weight 16,8",
                          "shared_expert.up_proj.weight 16,8",
                          "shared_expert.down_proj.weight 8,16",
                          "shared_expert_gate.weight 1,8"));
  EXPECT_EQ(Lines(Build(BuildQwen2Moe, config), "model.layers.0.self_attn.")[1],
            "q_proj.bias 8");
  EXPECT_EQ(Lines(Build(BuildQwen2Moe,
                        Decoder(R"("num_experts":2,"qkv_bias":false)")),
                  "model.layers.0.self_attn.")[1],
            "k_proj.weight 4,8");
}

// The router went behind the experts when these were fused.
TEST(DecoderBuildersTest, PutsQwen3MoesRouterByLayout) {
  const std::string config =
      Decoder(R"("num_local_experts":1,"moe_intermediate_size":6)");
  EXPECT_THAT(Lines(Build(BuildQwen3Moe, config), "model.layers.0.mlp."),
              ElementsAre("experts.gate_up_proj 1,12,8",
                          "experts.down_proj 1,8,6", "gate.weight 1,8"));
  EXPECT_THAT(Lines(Build(BuildQwen3Moe, config, ExpertLayout::kPerExpert),
                    "model.layers.0.mlp."),
              ElementsAre("gate.weight 1,8", "experts.0.gate_proj.weight 6,8",
                          "experts.0.up_proj.weight 6,8",
                          "experts.0.down_proj.weight 8,6"));
}

// Which of six layers have experts.
std::string SparseLayersOf(FamilyBuilder builder, const std::string& more) {
  const FamilyModel model =
      Build(builder, R"({"num_hidden_layers":6,"num_experts":2)" + more + "}");
  std::string sparse;
  for (const ParamSpec& spec : model.params) {
    if (!spec.name.ends_with(".experts.down_proj")) continue;
    sparse += spec.name[std::string("model.layers.").size()];
  }
  return sparse;
}

TEST(DecoderBuildersTest, MakesSomeQwenLayersSparse) {
  for (FamilyBuilder builder : {BuildQwen2Moe, BuildQwen3Moe}) {
    EXPECT_EQ(SparseLayersOf(builder, ""), "012345");
    EXPECT_EQ(SparseLayersOf(builder, R"(,"decoder_sparse_step":2)"), "135");
    EXPECT_EQ(SparseLayersOf(builder, R"(,"mlp_only_layers":[5,0,9])"), "1234");
    EXPECT_EQ(SparseLayersOf(builder, R"(,"mlp_only_layers":[1],
                                          "decoder_sparse_step":3)"),
              "25");
  }
  EXPECT_THAT(Lines(Build(BuildQwen3Moe, Decoder(R"("num_experts":0)")),
                    "model.layers.0.mlp."),
              ElementsAre("gate_proj.weight 12,8", "up_proj.weight 12,8",
                          "down_proj.weight 8,12"));
}

constexpr char kLatent[] =
    R"({"vocab_size":10,"hidden_size":8,"intermediate_size":12,
        "num_hidden_layers":2,"num_attention_heads":2,"n_routed_experts":2,
        "moe_intermediate_size":6,"n_shared_experts":3,"kv_lora_rank":5,
        "qk_nope_head_dim":3,"qk_rope_head_dim":4,"v_head_dim":7,
        "first_k_dense_replace":1,"num_nextn_predict_layers":2)";

TEST(DecoderBuildersTest, GivesDeepseekNarrowKeysAndSharedExperts) {
  const FamilyModel model =
      Build(BuildDeepseekV3, std::string(kLatent) + R"(,"q_lora_rank":9})");
  EXPECT_THAT(
      Lines(model, "model.layers.0.self_attn."),
      ElementsAre("q_a_proj.weight 9,8", "q_a_layernorm.weight 9",
                  "q_b_proj.weight 14,9", "kv_a_proj_with_mqa.weight 9,8",
                  "kv_a_layernorm.weight 5", "kv_b_proj.weight 20,5",
                  "o_proj.weight 8,14"));
  EXPECT_THAT(Lines(model, "model.layers.0.mlp."),
              ElementsAre("gate_proj.weight 12,8", "up_proj.weight 12,8",
                          "down_proj.weight 8,12"));
  // No e_score_correction_bias, which is a buffer.
  EXPECT_THAT(
      Lines(model, "model.layers.1.mlp."),
      ElementsAre("experts.gate_up_proj 2,12,8", "experts.down_proj 2,8,6",
                  "gate.weight 2,8", "shared_experts.gate_proj.weight 18,8",
                  "shared_experts.up_proj.weight 18,8",
                  "shared_experts.down_proj.weight 8,18"));
  EXPECT_THAT(model.ignored_prefixes,
              ElementsAre("model.layers.2.", "model.layers.3."));
}

TEST(DecoderBuildersTest, GivesDeepseekOneQueryMatrixWithoutARank) {
  const FamilyModel model = Build(BuildDeepseekV3, std::string(kLatent) +
                                                       R"(,"q_lora_rank":null,
                                     "attention_bias":true})");
  EXPECT_THAT(Lines(model, "model.layers.0.self_attn."),
              ElementsAre("q_proj.weight 14,8", "kv_a_proj_with_mqa.weight 9,8",
                          "kv_a_proj_with_mqa.bias 9",
                          "kv_a_layernorm.weight 5", "kv_b_proj.weight 20,5",
                          "o_proj.weight 8,14", "o_proj.bias 8"));
}

}  // namespace
}  // namespace castor
