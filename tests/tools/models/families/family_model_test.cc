// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/families/family_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "tests/tools/models/param_lines.h"
#include "tools/models/families/config_values.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Result<FamilyModel> Build(const std::string& json) {
  CASTOR_ASSIGN_OR_RETURN(const ConfigValues config, ConfigValues::Parse(json));
  return BuildFamilyModel(config);
}

int64_t ElementsOf(const FamilyModel& model) {
  int64_t sum = 0;
  for (const ParamSpec& spec : model.params) {
    sum += CountElements(spec.shape, spec.dtype).value().count();
  }
  return sum;
}

// Published parameter counts.
struct Published {
  std::string json;
  int64_t elements;
  size_t tensors;
};

class PublishedCountTest : public testing::TestWithParam<Published> {};

TEST_P(PublishedCountTest, IsMet) {
  const auto model = Build(GetParam().json);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(ElementsOf(*model), GetParam().elements);
  EXPECT_EQ(model->params.size(), GetParam().tensors);
}

INSTANTIATE_TEST_SUITE_P(
    All, PublishedCountTest,
    testing::Values(
        // GPT-2 small, all keys missing: the class's defaults.
        Published{R"({"model_type":"gpt2"})", 124'439'808, 148},
        Published{R"({"model_type":"gpt2","n_embd":1600,"n_layer":48,
                      "n_head":25})",
                  1'557'611'200, 580},
        Published{R"({"model_type":"gpt2","hidden_size":1600,
                      "num_hidden_layers":48,"num_attention_heads":25,
                      "max_position_embeddings":1024,"n_inner":null})",
                  1'557'611'200, 580},
        // Llama-2-7B, all keys missing.
        Published{R"({"model_type":"llama"})", 6'738'415'616, 291},
        Published{R"({"model_type":"llama","vocab_size":128256,
                      "intermediate_size":14336,"num_key_value_heads":8})",
                  8'030'261'248, 291},
        // Llama-2-70B.
        Published{R"({"model_type":"llama","hidden_size":8192,
                      "intermediate_size":28672,"num_hidden_layers":80,
                      "num_attention_heads":64,"num_key_value_heads":8})",
                  68'976'648'192, 723},
        // Llama-3.2-1B, tied.
        Published{R"({"model_type":"llama","hidden_size":2048,
                      "intermediate_size":8192,"num_hidden_layers":16,
                      "num_key_value_heads":8,"vocab_size":128256,
                      "head_dim":64,"tie_word_embeddings":true})",
                  1'235'814'400, 146},
        // Mistral-7B-v0.1, all keys missing; -v0.3 has more words.
        Published{R"({"model_type":"mistral"})", 7'241'732'096, 291},
        Published{R"({"model_type":"mistral","vocab_size":32768})",
                  7'248'023'552, 291}));

// transformers_lists_test holds the names, shapes and order of every family to
// the library's; this one is for people to read.
TEST(FamilyModelTest, RegistersLlamaAsItsReferenceDoes) {
  const auto model = Build(
      R"({"model_type":"llama","hidden_size":8,"intermediate_size":12,
          "num_hidden_layers":1,"num_attention_heads":4,
          "num_key_value_heads":2,"vocab_size":10})");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string layer = "model.layers.0.";
  EXPECT_THAT(ParamLines(model->params),
              ElementsAre("model.embed_tokens.weight 10,8",
                          layer + "self_attn.q_proj.weight 8,8",
                          layer + "self_attn.k_proj.weight 4,8",
                          layer + "self_attn.v_proj.weight 4,8",
                          layer + "self_attn.o_proj.weight 8,8",
                          layer + "mlp.gate_proj.weight 12,8",
                          layer + "mlp.up_proj.weight 12,8",
                          layer + "mlp.down_proj.weight 8,12",
                          layer + "input_layernorm.weight 8",
                          layer + "post_attention_layernorm.weight 8",
                          "model.norm.weight 8", "lm_head.weight 10,8"));
}

// What a list of names and shapes does not say.
TEST(FamilyModelTest, SaysWhichNamesShareAParameter) {
  const struct {
    std::string json;
    std::vector<std::string> tied;  // "name to"
  } cases[] = {
      {R"({"model_type":"gpt2","n_layer":1})",
       {"lm_head.weight transformer.wte.weight"}},
      {R"({"model_type":"gpt2","n_layer":1,"tie_word_embeddings":false})", {}},
      {R"({"model_type":"gemma2","num_hidden_layers":1})",
       {"lm_head.weight model.embed_tokens.weight"}},
      {R"({"model_type":"opt","num_hidden_layers":1})",
       {"lm_head.weight model.decoder.embed_tokens.weight"}},
      {R"({"model_type":"falcon","num_hidden_layers":1})",
       {"lm_head.weight transformer.word_embeddings.weight"}},
      {R"({"model_type":"bert","architectures":["BertForMaskedLM"]})",
       {"cls.predictions.decoder.weight "
        "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias cls.predictions.bias"}},
      {R"({"model_type":"bert","architectures":["BertModel"]})", {}},
      {R"({"model_type":"t5","num_layers":1})",
       {"encoder.embed_tokens.weight shared.weight",
        "decoder.embed_tokens.weight shared.weight",
        "lm_head.weight shared.weight"}}};
  for (const auto& each : cases) {
    const auto model = Build(each.json);
    ASSERT_TRUE(model.ok()) << model.status();
    std::vector<std::string> tied;
    for (const TiedName& name : model->tied) {
      tied.push_back(name.name + " " + name.to);
    }
    EXPECT_EQ(tied, each.tied) << each.json;
  }
}

TEST(FamilyModelTest, LeavesOutWhatFilesHoldAndModelsDoNot) {
  const auto deepseek = Build(
      R"({"model_type":"deepseek_v3","num_hidden_layers":2,
          "n_routed_experts":2,"num_nextn_predict_layers":2})");
  EXPECT_THAT(deepseek->ignored_prefixes,
              ElementsAre("model.layers.2.", "model.layers.3."));
  EXPECT_THAT(Build(R"({"model_type":"t5","num_layers":1})")->ignored_prefixes,
              ElementsAre("decoder.block.0.layer.1.EncDecAttention."
                          "relative_attention_bias."));
}

TEST(FamilyModelTest, ReadsOlderNamesOfKeys) {
  const auto falcon = Build(
      R"({"model_type":"falcon","hidden_size":8,"num_attention_heads":2,
          "num_hidden_layers":1,"n_embed":16})");
  EXPECT_THAT(falcon->params[0].shape, ElementsAre(65024, 16));
  const auto qwen = Build(
      R"({"model_type":"qwen3_moe","num_hidden_layers":1,
          "num_local_experts":3})");
  EXPECT_THAT(ParamLines(qwen->params, "model.layers.0.mlp.")[2],
              "gate.weight 3,2048");
}

// Which of six layers have experts.
std::string SparseLayersOf(const std::string& family, const std::string& more) {
  const auto model =
      Build(R"({"model_type":")" + family +
            R"(","num_hidden_layers":6,"num_experts":2)" + more + "}");
  std::string sparse;
  for (const ParamSpec& spec : model->params) {
    if (!spec.name.ends_with(".experts.down_proj")) continue;
    sparse += spec.name[std::string("model.layers.").size()];
  }
  return sparse;
}

TEST(FamilyModelTest, MakesSomeQwenLayersSparse) {
  for (const std::string family : {"qwen2_moe", "qwen3_moe"}) {
    EXPECT_EQ(SparseLayersOf(family, ""), "012345");
    EXPECT_EQ(SparseLayersOf(family, R"(,"decoder_sparse_step":2)"), "135");
    EXPECT_EQ(SparseLayersOf(family, R"(,"mlp_only_layers":[5,0,9])"), "1234");
    EXPECT_EQ(SparseLayersOf(family, R"(,"mlp_only_layers":[1],
                                          "decoder_sparse_step":3)"),
              "25");
  }
}

TEST(FamilyModelTest, TakesNullHeadsForAsManyAsHeads) {
  const auto llama =
      Build(R"({"model_type":"llama","num_key_value_heads":null})");
  EXPECT_EQ(ElementsOf(*llama), 6'738'415'616);
  const auto mistral =
      Build(R"({"model_type":"mistral","num_key_value_heads":null})");
  EXPECT_THAT(mistral->params[2].shape, ElementsAre(4096, 4096));
}

TEST(FamilyModelTest, TakesTheTypeFromTheConfig) {
  const auto model =
      Build(R"({"model_type":"llama","torch_dtype":"bfloat16"})");
  EXPECT_EQ(model->params[0].dtype, DType::kBF16);
  EXPECT_EQ(Build(R"({"model_type":"gpt2"})")->params[0].dtype, DType::kF32);
}

TEST(FamilyModelTest, SaysWhatItDoesNotCover) {
  EXPECT_THAT(Build(R"({"model_type":"gpt2"})")->notes, IsEmpty());
  EXPECT_THAT(Build(R"({"model_type":"gpt2",
                        "architectures":["GPT2LMHeadModel"]})")
                  ->notes,
              IsEmpty());
  EXPECT_THAT(Build(R"({"model_type":"gpt2",
                "architectures":["GPT2ForSequenceClassification"]})")
                  ->notes,
              ElementsAre(HasSubstr("names the architecture "
                                    "\"GPT2ForSequenceClassification\"; its "
                                    "parameters are listed as those of "
                                    "GPT2LMHeadModel")));
  const auto part = Build(
      R"({"model_type":"llava","architectures":["LlavaModel"],
          "vision_config":{},"text_config":{"model_type":"llama"},
          "quantization_config":{}})");
  EXPECT_THAT(part->notes,
              ElementsAre(HasSubstr("not covered: vision_config")));
  EXPECT_TRUE(part->quantized);
}

TEST(FamilyModelTest, LeavesHeadAndPrefixOutOfABareModel) {
  const std::string sizes =
      R"("n_embd":8,"n_layer":1,"n_head":2,"n_positions":4,"vocab_size":10)";
  const auto bare = Build(R"({"model_type":"gpt2",
      "tie_word_embeddings":false,"architectures":["GPT2Model"],)" +
                          sizes + "}");
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_THAT(bare->notes, IsEmpty());
  EXPECT_THAT(bare->tied, IsEmpty());
  EXPECT_EQ(bare->base_prefix, "");
  ASSERT_EQ(bare->params.size(), 16u);
  EXPECT_EQ(bare->params.front().name, "wte.weight");
  EXPECT_EQ(bare->params.back().name, "ln_f.bias");

  const auto deepseek = Build(
      R"({"model_type":"deepseek_v3","num_hidden_layers":2,
          "n_routed_experts":2,"architectures":["DeepseekV3Model"]})");
  EXPECT_EQ(deepseek->params.back().name, "norm.weight");
  EXPECT_THAT(deepseek->ignored_prefixes, ElementsAre("layers.2."));
}

struct Hostile {
  std::string json;
  std::string message;
};

class HostileFamilyTest : public testing::TestWithParam<Hostile> {};

TEST_P(HostileFamilyTest, IsMalformed) {
  const auto model = Build(GetParam().json);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(ExitCode(model.status().code()), 4);
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileFamilyTest,
    testing::Values(
        Hostile{R"({"model_type":"gpt2","n_layer":2000000000})",
                "n_layer is 2000000000; more than 10000"},
        Hostile{R"({"model_type":"llama","num_hidden_layers":10001})",
                "num_hidden_layers is 10001"},
        Hostile{R"({"model_type":"gpt2","n_head":0})", R"("n_head" is 0)"},
        Hostile{R"({"model_type":"gpt2","n_head":7})",
                "n_embd 768 is not a multiple of n_head 7"},
        Hostile{R"({"model_type":"llama","num_attention_heads":3})",
                "hidden_size 4096 is not a multiple"},
        Hostile{R"({"model_type":"llama","num_key_value_heads":5})",
                "num_attention_heads 32 is not a multiple of "
                "num_key_value_heads 5"},
        Hostile{R"({"model_type":"llama","head_dim":2147483647,
                    "hidden_size":2147483647,"num_attention_heads":65536,
                    "num_key_value_heads":65536})",
                "parameter \"model.layers.0.self_attn.q_proj.weight\": shape"},
        Hostile{R"({"model_type":"llama","num_attention_heads":65537})",
                "num_attention_heads is 65537; more than 65536"},
        Hostile{R"({"model_type":"gpt2","tie_word_embeddings":"yes"})",
                R"("tie_word_embeddings" is "yes")"},
        Hostile{R"({"model_type":"gpt2","dtype":"F4","n_embd":3,"n_head":3})",
                "do not end on a byte"},
        Hostile{R"({"model_type":"qwen2","num_key_value_heads":-4})",
                R"("num_key_value_heads" is -4)"},
        Hostile{R"({"model_type":"qwen3","head_dim":"128"})",
                R"("head_dim" is "128")"},
        Hostile{R"({"model_type":"gemma2","num_hidden_layers":null})",
                R"("num_hidden_layers" is null)"},
        Hostile{R"({"model_type":"mixtral","num_local_experts":0})",
                R"("num_local_experts" is 0)"},
        Hostile{R"({"model_type":"mixtral","num_local_experts":65537})",
                "num_local_experts is 65537; more than 65536"},
        Hostile{R"({"model_type":"mixtral","num_local_experts":60000})",
                "num_local_experts is 60000, and with 32 layers that makes "
                "more than 1000000 tensors"},
        Hostile{R"({"model_type":"qwen2_moe","mlp_only_layers":3})",
                R"("mlp_only_layers" is 3 where an array of whole)"},
        Hostile{R"({"model_type":"qwen2_moe","mlp_only_layers":[-1]})",
                R"("mlp_only_layers" is an array of other things)"},
        Hostile{R"({"model_type":"qwen3_moe","decoder_sparse_step":0})",
                R"("decoder_sparse_step" is 0)"},
        Hostile{R"({"model_type":"qwen3_moe","num_experts":128,
                    "num_hidden_layers":10000})",
                "num_experts is 128, and with 10000 layers"},
        Hostile{R"({"model_type":"deepseek_v3","q_lora_rank":0})",
                R"("q_lora_rank" is 0)"},
        Hostile{R"({"model_type":"deepseek_v3","n_shared_experts":100000})",
                "n_shared_experts is 100000; more than 65536"},
        Hostile{R"({"model_type":"deepseek_v3",
                    "num_nextn_predict_layers":100})",
                "num_nextn_predict_layers is 100; more than 64"},
        Hostile{R"({"model_type":"deepseek_v3","num_attention_heads":65536,
                    "qk_nope_head_dim":2147483647,
                    "q_lora_rank":2147483647})",
                "parameter \"model.layers.0.self_attn.q_b_proj.weight\""},
        Hostile{R"({"model_type":"gpt_neox","num_attention_heads":7})",
                "hidden_size 6144 is not a multiple of num_attention_heads 7"},
        Hostile{R"({"model_type":"opt","word_embed_proj_dim":false})",
                R"("word_embed_proj_dim" is false)"},
        Hostile{R"({"model_type":"falcon","num_kv_heads":72})",
                "num_kv_heads is 72; more than 71"},
        Hostile{R"({"model_type":"falcon","alibi":1})", R"("alibi" is 1)"},
        Hostile{R"({"model_type":"bert","type_vocab_size":0})",
                R"("type_vocab_size" is 0)"},
        Hostile{R"({"model_type":"gpt2","n_embd":64,"hidden_size":32})",
                R"("n_embd" is 64 and "hidden_size" is 32, which are names)"},
        Hostile{R"({"model_type":"t5","feed_forward_proj":"half-gelu"})",
                R"("feed_forward_proj" is "half-gelu")"},
        Hostile{R"({"model_type":"t5","feed_forward_proj":"gated-a-b"})",
                R"("feed_forward_proj" is "gated-a-b")"},
        Hostile{R"({"model_type":"t5","feed_forward_proj":7})",
                R"("feed_forward_proj" is 7)"},
        Hostile{R"({"model_type":"t5","num_decoder_layers":20000})",
                "num_decoder_layers is 20000; more than 10000"}));

// Whose files name an architecture of another family.
TEST(FamilyModelTest, ListsKimiAsDeepSeek) {
  const std::string sizes =
      R"(,"architectures":["DeepseekV3ForCausalLM"],"num_hidden_layers":2,
      "hidden_size":64,"n_routed_experts":4,"first_k_dense_replace":1})";
  const auto kimi = Build(R"({"model_type":"kimi_k2")" + sizes);
  const auto deepseek = Build(R"({"model_type":"deepseek_v3")" + sizes);
  ASSERT_TRUE(kimi.ok()) << kimi.status();
  ASSERT_TRUE(deepseek.ok()) << deepseek.status();
  EXPECT_EQ(kimi->family, "kimi_k2");
  ASSERT_EQ(kimi->params.size(), deepseek->params.size());
  for (size_t p = 0; p < kimi->params.size(); ++p) {
    EXPECT_EQ(kimi->params[p].name, deepseek->params[p].name);
    EXPECT_EQ(kimi->params[p].shape, deepseek->params[p].shape);
  }
}

TEST(FamilyModelTest, KnowsItsFamilies) {
  EXPECT_THAT(
      KnownFamilies(),
      ElementsAre("gpt2", "llama", "mistral", "qwen2", "qwen3", "smollm3",
                  "granite", "ministral", "gemma", "phi3", "olmo2", "olmo3",
                  "glm4", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3",
                  "kimi_k2", "olmoe", "minimax_m2", "gpt_oss", "glm4_moe",
                  "gemma2", "gemma3_text", "starcoder2", "gpt_neox", "opt",
                  "bert", "t5", "falcon"));
  EXPECT_TRUE(IsKnownFamily("gpt2"));
  EXPECT_FALSE(IsKnownFamily("GPT2"));
  EXPECT_FALSE(IsKnownFamily(""));
}

}  // namespace
}  // namespace castor
