// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/family_builders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/models/build_family.h"
#include "tools/models/family_model.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

TEST(FamilyBuildersTest, BuildsGptNeox) {
  const std::string sizes =
      R"({"vocab_size":10,"hidden_size":8,"intermediate_size":12,
          "num_hidden_layers":1,"num_attention_heads":2)";
  const FamilyModel model = Build(BuildGptNeox, sizes + "}");
  EXPECT_THAT(
      Lines(model),
      ElementsAre("gpt_neox.embed_in.weight 10,8",
                  "gpt_neox.layers.0.input_layernorm.weight 8",
                  "gpt_neox.layers.0.input_layernorm.bias 8",
                  "gpt_neox.layers.0.post_attention_layernorm.weight 8",
                  "gpt_neox.layers.0.post_attention_layernorm.bias 8",
                  "gpt_neox.layers.0.attention.query_key_value.weight 24,8",
                  "gpt_neox.layers.0.attention.query_key_value.bias 24",
                  "gpt_neox.layers.0.attention.dense.weight 8,8",
                  "gpt_neox.layers.0.attention.dense.bias 8",
                  "gpt_neox.layers.0.mlp.dense_h_to_4h.weight 12,8",
                  "gpt_neox.layers.0.mlp.dense_h_to_4h.bias 12",
                  "gpt_neox.layers.0.mlp.dense_4h_to_h.weight 8,12",
                  "gpt_neox.layers.0.mlp.dense_4h_to_h.bias 8",
                  "gpt_neox.final_layer_norm.weight 8",
                  "gpt_neox.final_layer_norm.bias 8", "lm_head.weight 10,8"));
  EXPECT_EQ(
      Build(BuildGptNeox, sizes + R"(,"attention_bias":false})").params.size(),
      model.params.size() - 2);
}

constexpr char kOpt[] =
    R"({"vocab_size":10,"hidden_size":8,"ffn_dim":12,"num_hidden_layers":1,
        "num_attention_heads":2,"max_position_embeddings":6)";

TEST(FamilyBuildersTest, BuildsOpt) {
  const FamilyModel model = Build(BuildOpt, std::string(kOpt) + "}");
  EXPECT_THAT(
      Lines(model, "model.decoder."),
      ElementsAre("embed_tokens.weight 10,8", "embed_positions.weight 8,8",
                  "final_layer_norm.weight 8", "final_layer_norm.bias 8",
                  "layers.0.self_attn.k_proj.weight 8,8",
                  "layers.0.self_attn.k_proj.bias 8",
                  "layers.0.self_attn.v_proj.weight 8,8",
                  "layers.0.self_attn.v_proj.bias 8",
                  "layers.0.self_attn.q_proj.weight 8,8",
                  "layers.0.self_attn.q_proj.bias 8",
                  "layers.0.self_attn.out_proj.weight 8,8",
                  "layers.0.self_attn.out_proj.bias 8",
                  "layers.0.self_attn_layer_norm.weight 8",
                  "layers.0.self_attn_layer_norm.bias 8",
                  "layers.0.fc1.weight 12,8", "layers.0.fc1.bias 12",
                  "layers.0.fc2.weight 8,12", "layers.0.fc2.bias 8",
                  "layers.0.final_layer_norm.weight 8",
                  "layers.0.final_layer_norm.bias 8"));
  EXPECT_EQ(model.tied.at(0).to, "model.decoder.embed_tokens.weight");
}

TEST(FamilyBuildersTest, ProjectsOptsWordsAsItsSmallModelDoes) {
  const FamilyModel model = Build(
      BuildOpt, std::string(kOpt) +
                    R"(,"word_embed_proj_dim":4,"do_layer_norm_before":false,
                        "tie_word_embeddings":false})");
  const std::vector<std::string> lines = Lines(model);
  EXPECT_THAT(std::vector<std::string>(lines.begin(), lines.begin() + 5),
              ElementsAre("model.decoder.embed_tokens.weight 10,4",
                          "model.decoder.embed_positions.weight 8,8",
                          "model.decoder.project_out.weight 4,8",
                          "model.decoder.project_in.weight 8,4",
                          "model.decoder.layers.0.self_attn.k_proj.weight "
                          "8,8"));
  EXPECT_EQ(lines.back(), "lm_head.weight 10,4");
}

TEST(FamilyBuildersTest, LeavesOptsBiasesAndNormsOut) {
  for (const ParamSpec& spec :
       Build(BuildOpt, std::string(kOpt) + R"(,"enable_bias":false,
                                "layer_norm_elementwise_affine":false})")
           .params) {
    EXPECT_EQ(spec.name.find("norm"), std::string::npos) << spec.name;
    EXPECT_EQ(spec.name.find("bias"), std::string::npos) << spec.name;
  }
  EXPECT_EQ(Build(BuildOpt,
                  std::string(kOpt) + R"(,"_remove_final_layer_norm":true})")
                .params[2]
                .name,
            "model.decoder.layers.0.self_attn.k_proj.weight");
}

// Layer 0 of width 8 with two heads.
std::vector<std::string> FalconLayer(const std::string& more) {
  return Lines(Build(BuildFalcon,
                     R"({"hidden_size":8,"num_attention_heads":2,
                "num_hidden_layers":1)" +
                         more + "}"),
               "transformer.h.0.");
}

TEST(FamilyBuildersTest, BuildsFalconsThreeKinds) {
  EXPECT_THAT(
      FalconLayer(""),
      ElementsAre("self_attention.query_key_value.weight 16,8",
                  "self_attention.dense.weight 8,8",
                  "mlp.dense_h_to_4h.weight 32,8",
                  "mlp.dense_4h_to_h.weight 8,32", "input_layernorm.weight 8",
                  "input_layernorm.bias 8"));
  EXPECT_THAT(
      FalconLayer(R"(,"new_decoder_architecture":true,
                              "num_kv_heads":1,"ffn_hidden_size":12)"),
      ElementsAre("self_attention.query_key_value.weight 16,8",
                  "self_attention.dense.weight 8,8",
                  "mlp.dense_h_to_4h.weight 12,8",
                  "mlp.dense_4h_to_h.weight 8,12", "ln_attn.weight 8",
                  "ln_attn.bias 8", "ln_mlp.weight 8", "ln_mlp.bias 8"));
  EXPECT_THAT(
      FalconLayer(R"(,"multi_query":false,"parallel_attn":false,"bias":true,
                      "alibi":true)"),
      ElementsAre("self_attention.query_key_value.weight 24,8",
                  "self_attention.query_key_value.bias 24",
                  "self_attention.dense.weight 8,8",
                  "self_attention.dense.bias 8",
                  "mlp.dense_h_to_4h.weight 32,8", "mlp.dense_h_to_4h.bias 32",
                  "mlp.dense_4h_to_h.weight 8,32", "mlp.dense_4h_to_h.bias 8",
                  "post_attention_layernorm.weight 8",
                  "post_attention_layernorm.bias 8", "input_layernorm.weight 8",
                  "input_layernorm.bias 8"));
  // Falcon-11B has one norm in the newer layer.
  EXPECT_EQ(FalconLayer(R"(,"new_decoder_architecture":true,
                            "num_ln_in_parallel_attn":1)")[4],
            "input_layernorm.weight 8");
  EXPECT_EQ(FalconLayer(R"(,"n_embed":16)")[1],
            "self_attention.dense.weight 16,16");
}

constexpr char kBert[] =
    R"({"vocab_size":10,"hidden_size":8,"intermediate_size":12,
        "num_hidden_layers":1,"num_attention_heads":2,
        "max_position_embeddings":6,"type_vocab_size":2)";

TEST(FamilyBuildersTest, BuildsTheBareBert) {
  const FamilyModel model = Build(BuildBert, std::string(kBert) + "}",
                                  ExpertLayout::kFused, "BertModel");
  EXPECT_THAT(Lines(model),
              ElementsAre("embeddings.word_embeddings.weight 10,8",
                          "embeddings.position_embeddings.weight 6,8",
                          "embeddings.token_type_embeddings.weight 2,8",
                          "embeddings.LayerNorm.weight 8",
                          "embeddings.LayerNorm.bias 8",
                          "encoder.layer.0.attention.self.query.weight 8,8",
                          "encoder.layer.0.attention.self.query.bias 8",
                          "encoder.layer.0.attention.self.key.weight 8,8",
                          "encoder.layer.0.attention.self.key.bias 8",
                          "encoder.layer.0.attention.self.value.weight 8,8",
                          "encoder.layer.0.attention.self.value.bias 8",
                          "encoder.layer.0.attention.output.dense.weight 8,8",
                          "encoder.layer.0.attention.output.dense.bias 8",
                          "encoder.layer.0.attention.output.LayerNorm.weight 8",
                          "encoder.layer.0.attention.output.LayerNorm.bias 8",
                          "encoder.layer.0.intermediate.dense.weight 12,8",
                          "encoder.layer.0.intermediate.dense.bias 12",
                          "encoder.layer.0.output.dense.weight 8,12",
                          "encoder.layer.0.output.dense.bias 8",
                          "encoder.layer.0.output.LayerNorm.weight 8",
                          "encoder.layer.0.output.LayerNorm.bias 8",
                          "pooler.dense.weight 8,8", "pooler.dense.bias 8"));
  EXPECT_THAT(model.tied, IsEmpty());
}

TEST(FamilyBuildersTest, GivesBertTheHeadOfItsArchitecture) {
  const FamilyModel masked = Build(BuildBert, std::string(kBert) + "}",
                                   ExpertLayout::kFused, "BertForMaskedLM");
  EXPECT_THAT(Lines(masked, "bert.pooler."), IsEmpty());
  EXPECT_THAT(Lines(masked, "cls."),
              ElementsAre("predictions.bias 10",
                          "predictions.transform.dense.weight 8,8",
                          "predictions.transform.dense.bias 8",
                          "predictions.transform.LayerNorm.weight 8",
                          "predictions.transform.LayerNorm.bias 8"));
  ASSERT_EQ(masked.tied.size(), 2u);
  EXPECT_EQ(masked.tied[0].to, "bert.embeddings.word_embeddings.weight");
  EXPECT_EQ(masked.tied[1].name, "cls.predictions.decoder.bias");

  const FamilyModel both =
      Build(BuildBert, std::string(kBert) + R"(,"tie_word_embeddings":false})",
            ExpertLayout::kFused, "BertForPreTraining");
  EXPECT_THAT(Lines(both, "bert.pooler."), Not(IsEmpty()));
  const std::vector<std::string> head = Lines(both, "cls.");
  EXPECT_THAT(
      std::vector<std::string>(head.begin() + 5, head.end()),
      ElementsAre("predictions.decoder.weight 10,8",
                  "predictions.decoder.bias 10", "seq_relationship.weight 2,8",
                  "seq_relationship.bias 2"));
  EXPECT_THAT(both.tied, IsEmpty());
}

constexpr char kT5[] =
    R"({"vocab_size":10,"d_model":8,"d_ff":12,"d_kv":3,"num_heads":2,
        "num_layers":2,"num_decoder_layers":1,
        "relative_attention_num_buckets":5)";

TEST(FamilyBuildersTest, BuildsT5WithPositionsInItsFirstLayers) {
  const FamilyModel model =
      Build(BuildT5, std::string(kT5) + "}", ExpertLayout::kFused,
            "T5ForConditionalGeneration");
  EXPECT_EQ(Lines(model)[0], "shared.weight 10,8");
  EXPECT_THAT(
      Lines(model, "encoder."),
      ElementsAre("block.0.layer.0.SelfAttention.q.weight 6,8",
                  "block.0.layer.0.SelfAttention.k.weight 6,8",
                  "block.0.layer.0.SelfAttention.v.weight 6,8",
                  "block.0.layer.0.SelfAttention.o.weight 8,6",
                  "block.0.layer.0.SelfAttention.relative_attention_bias."
                  "weight 5,2",
                  "block.0.layer.0.layer_norm.weight 8",
                  "block.0.layer.1.DenseReluDense.wi.weight 12,8",
                  "block.0.layer.1.DenseReluDense.wo.weight 8,12",
                  "block.0.layer.1.layer_norm.weight 8",
                  "block.1.layer.0.SelfAttention.q.weight 6,8",
                  "block.1.layer.0.SelfAttention.k.weight 6,8",
                  "block.1.layer.0.SelfAttention.v.weight 6,8",
                  "block.1.layer.0.SelfAttention.o.weight 8,6",
                  "block.1.layer.0.layer_norm.weight 8",
                  "block.1.layer.1.DenseReluDense.wi.weight 12,8",
                  "block.1.layer.1.DenseReluDense.wo.weight 8,12",
                  "block.1.layer.1.layer_norm.weight 8",
                  "final_layer_norm.weight 8"));
  const std::vector<std::string> decoder = Lines(model, "decoder.");
  ASSERT_EQ(decoder.size(), 15u);
  EXPECT_EQ(decoder[6], "block.0.layer.1.EncDecAttention.q.weight 6,8");
  EXPECT_EQ(decoder[10], "block.0.layer.1.layer_norm.weight 8");
  EXPECT_EQ(decoder[11], "block.0.layer.2.DenseReluDense.wi.weight 12,8");
  EXPECT_EQ(model.tied.size(), 3u);
  EXPECT_THAT(model.ignored_prefixes,
              ElementsAre("decoder.block.0.layer.1.EncDecAttention."
                          "relative_attention_bias."));
}

TEST(FamilyBuildersTest, BuildsT5sOtherKinds) {
  const FamilyModel gated = Build(
      BuildT5,
      std::string(kT5) +
          R"(,"feed_forward_proj":"gated-gelu","tie_word_embeddings":false})",
      ExpertLayout::kFused, "T5ForConditionalGeneration");
  EXPECT_EQ(Lines(gated, "encoder.")[7],
            "block.0.layer.1.DenseReluDense.wi_1.weight 12,8");
  EXPECT_EQ(Lines(gated).back(), "lm_head.weight 10,8");
  const FamilyModel encoder = Build(BuildT5, std::string(kT5) + "}",
                                    ExpertLayout::kFused, "T5EncoderModel");
  EXPECT_EQ(Lines(encoder).back(), "encoder.final_layer_norm.weight 8");
  const FamilyModel bare =
      Build(BuildT5, std::string(kT5) + R"(,"tie_word_embeddings":false})",
            ExpertLayout::kFused, "T5Model");
  EXPECT_EQ(Lines(bare).back(), "decoder.final_layer_norm.weight 8");
}

}  // namespace
}  // namespace castor
