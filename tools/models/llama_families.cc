// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Families of Llama's shape: dense ones, those with experts, DeepSeek-V3.

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tools/models/family_builders.h"
#include "tools/models/family_parts.h"

namespace castor {
namespace {

struct DenseParts {
  AttentionBiases attention_biases;
  bool mlp_bias = false;
  bool head_norms = false;  // q_norm and k_norm, over the width of a head
  std::vector<std::string_view> norms = DecoderParts().norms;
};

FamilyModel BuildDense(const FamilyRequest& request, const DecoderSizes& sizes,
                       const DenseParts& parts) {
  const AddToLayer attention = [&](int64_t, const std::string& layer,
                                   ParamWriter& writer) {
    const std::string prefix = layer + "self_attn.";
    AddAttention(prefix, sizes.width, sizes.attention, parts.attention_biases,
                 writer);
    if (parts.head_norms) {
      writer.RmsNorm(prefix + "q_norm", sizes.attention.head_dim);
      writer.RmsNorm(prefix + "k_norm", sizes.attention.head_dim);
    }
  };
  const AddToLayer mlp = [&](int64_t, const std::string& layer,
                             ParamWriter& writer) {
    writer.GatedMlp(layer + "mlp.", sizes.width, sizes.inner, parts.mlp_bias);
  };
  return BuildDecoder(
      request, sizes,
      {.attention = attention, .mlp = mlp, .norms = parts.norms});
}

}  // namespace

Result<FamilyModel> BuildLlama(const FamilyRequest& request) {
  CASTOR_ASSIGN_OR_RETURN(const DecoderSizes sizes,
                          ReadDecoder(request.config, {.inner = 11008}));
  CASTOR_ASSIGN_OR_RETURN(const bool bias,
                          request.config.Bool("attention_bias", false));
  CASTOR_ASSIGN_OR_RETURN(const bool mlp_bias,
                          request.config.Bool("mlp_bias", false));
  return BuildDense(request, sizes,
                    {.attention_biases = {.inputs = bias, .output = bias},
                     .mlp_bias = mlp_bias});
}

Result<FamilyModel> BuildMistral(const FamilyRequest& request) {
  CASTOR_ASSIGN_OR_RETURN(
      const DecoderSizes sizes,
      ReadDecoder(request.config,
                  {.attention = {.heads = 32, .key_value_heads = 8}}));
  return BuildDense(request, sizes, {});
}

Result<FamilyModel> BuildQwen2(const FamilyRequest& request) {
  CASTOR_ASSIGN_OR_RETURN(
      const DecoderSizes sizes,
      ReadDecoder(request.config,
                  {.vocab = 151936,
                   .inner = 22016,
                   .attention = {.heads = 32, .key_value_heads = 32}}));
  return BuildDense(request, sizes, {.attention_biases = {.inputs = true}});
}

Result<FamilyModel> BuildQwen3(const FamilyRequest& request) {
  CASTOR_ASSIGN_OR_RETURN(
      const DecoderSizes sizes,
      ReadDecoder(request.config,
                  {.vocab = 151936,
                   .inner = 22016,
                   .attention = {
                       .heads = 32, .key_value_heads = 32, .head_dim = 128}}));
  CASTOR_ASSIGN_OR_RETURN(const bool bias,
                          request.config.Bool("attention_bias", false));
  return BuildDense(request, sizes,
                    {.attention_biases = {.inputs = bias, .output = bias},
                     .head_norms = true});
}

Result<FamilyModel> BuildGemma2(const FamilyRequest& request) {
  CASTOR_ASSIGN_OR_RETURN(
      const DecoderSizes sizes,
      ReadDecoder(
          request.config,
          {.vocab = 256000,
           .width = 2304,
           .inner = 9216,
           .layers = 26,
           .attention = {.heads = 8, .key_value_heads = 4, .head_dim = 256},
           .tied = true}));
  CASTOR_ASSIGN_OR_RETURN(const bool bias,
                          request.config.Bool("attention_bias", false));
  return BuildDense(
      request, sizes,
      {.attention_biases = {.inputs = bias, .output = bias},
       .norms = {"input_layernorm", "post_attention_layernorm",
                 "pre_feedforward_layernorm", "post_feedforward_layernorm"}});
}

namespace {

// Which layers of the Qwen families have experts.
struct SparseLayers {
  int64_t experts = 0;
  int64_t step = 1;
  std::vector<int64_t> dense;  // sorted

  bool Contains(int64_t layer) const {
    return experts > 0 && (layer + 1) % step == 0 &&
           !std::binary_search(dense.begin(), dense.end(), layer);
  }
};

Result<SparseLayers> ReadSparseLayers(const ConfigValues& config,
                                      int64_t default_experts, int64_t layers) {
  SparseLayers sparse;
  CASTOR_ASSIGN_OR_RETURN(
      sparse.experts, ReadExperts(config, "num_experts", "num_local_experts",
                                  default_experts, 0, layers));
  CASTOR_ASSIGN_OR_RETURN(sparse.step, config.Int("decoder_sparse_step", 1));
  CASTOR_ASSIGN_OR_RETURN(sparse.dense, config.IntList("mlp_only_layers"));
  std::sort(sparse.dense.begin(), sparse.dense.end());
  return sparse;
}

}  // namespace

Result<FamilyModel> BuildMixtral(const FamilyRequest& request) {
  const ConfigValues& config = request.config;
  CASTOR_ASSIGN_OR_RETURN(
      const DecoderSizes sizes,
      ReadDecoder(config, {.attention = {.heads = 32, .key_value_heads = 8}}));
  CASTOR_ASSIGN_OR_RETURN(const int64_t experts,
                          ReadExperts(config, "num_local_experts",
                                      "num_experts", 8, 1, sizes.layers));
  const bool fused = request.experts == ExpertLayout::kFused;
  const std::string block = fused ? "mlp." : "block_sparse_moe.";
  const AddToLayer attention = [&](int64_t, const std::string& layer,
                                   ParamWriter& writer) {
    AddAttention(layer + "self_attn.", sizes.width, sizes.attention, {},
                 writer);
  };
  const AddToLayer mlp = [&](int64_t, const std::string& layer,
                             ParamWriter& writer) {
    writer.Linear(layer + block + "gate", sizes.width, experts);
    writer.Experts(
        layer + block + "experts",
        {.count = experts, .width = sizes.width, .inner = sizes.inner},
        request.experts, ExpertNames::kNumbers);
  };
  FamilyModel model =
      BuildDecoder(request, sizes, {.attention = attention, .mlp = mlp});
  if (fused) {
    model.spellings = {{".block_sparse_moe.", ".mlp."}};
  } else {
    model.spellings = {{".mlp.", ".block_sparse_moe."},
                       {".gate_proj.", ".w1."},
                       {".down_proj.", ".w2."},
                       {".up_proj.", ".w3."}};
  }
  return model;
}

Result<FamilyModel> BuildQwen2Moe(const FamilyRequest& request) {
  const ConfigValues& config = request.config;
  CASTOR_ASSIGN_OR_RETURN(
      const DecoderSizes sizes,
      ReadDecoder(config, {.vocab = 151936,
                           .width = 2048,
                           .inner = 5632,
                           .layers = 24,
                           .attention = {.heads = 16, .key_value_heads = 16}}));
  CASTOR_ASSIGN_OR_RETURN(const SparseLayers sparse,
                          ReadSparseLayers(config, 60, sizes.layers));
  CASTOR_ASSIGN_OR_RETURN(const int64_t inner,
                          config.Int("moe_intermediate_size", 1408));
  CASTOR_ASSIGN_OR_RETURN(const int64_t shared,
                          config.Int("shared_expert_intermediate_size", 5632));
  CASTOR_ASSIGN_OR_RETURN(const bool bias, config.Bool("qkv_bias", true));
  const AddToLayer attention = [&](int64_t, const std::string& layer,
                                   ParamWriter& writer) {
    AddAttention(layer + "self_attn.", sizes.width, sizes.attention,
                 {.inputs = bias}, writer);
  };
  const AddToLayer mlp = [&](int64_t index, const std::string& layer,
                             ParamWriter& writer) {
    const std::string prefix = layer + "mlp.";
    if (!sparse.Contains(index)) {
      writer.GatedMlp(prefix, sizes.width, sizes.inner);
      return;
    }
    writer.Linear(prefix + "gate", sizes.width, sparse.experts);
    writer.Experts(
        prefix + "experts",
        {.count = sparse.experts, .width = sizes.width, .inner = inner},
        request.experts, ExpertNames::kProjections);
    writer.GatedMlp(prefix + "shared_expert.", sizes.width, shared);
    writer.Linear(prefix + "shared_expert_gate", sizes.width, 1);
  };
  return BuildDecoder(request, sizes, {.attention = attention, .mlp = mlp});
}

Result<FamilyModel> BuildQwen3Moe(const FamilyRequest& request) {
  const ConfigValues& config = request.config;
  CASTOR_ASSIGN_OR_RETURN(
      const DecoderSizes sizes,
      ReadDecoder(config, {.vocab = 151936,
                           .width = 2048,
                           .inner = 6144,
                           .layers = 24,
                           .attention = {.heads = 32, .key_value_heads = 4}}));
  CASTOR_ASSIGN_OR_RETURN(const SparseLayers sparse,
                          ReadSparseLayers(config, 128, sizes.layers));
  CASTOR_ASSIGN_OR_RETURN(const int64_t inner,
                          config.Int("moe_intermediate_size", 768));
  CASTOR_ASSIGN_OR_RETURN(const bool bias,
                          config.Bool("attention_bias", false));
  const AddToLayer attention = [&](int64_t, const std::string& layer,
                                   ParamWriter& writer) {
    const std::string prefix = layer + "self_attn.";
    AddAttention(prefix, sizes.width, sizes.attention,
                 {.inputs = bias, .output = bias}, writer);
    writer.RmsNorm(prefix + "q_norm", sizes.attention.head_dim);
    writer.RmsNorm(prefix + "k_norm", sizes.attention.head_dim);
  };
  const bool fused = request.experts == ExpertLayout::kFused;
  const AddToLayer mlp = [&](int64_t index, const std::string& layer,
                             ParamWriter& writer) {
    const std::string prefix = layer + "mlp.";
    if (!sparse.Contains(index)) {
      writer.GatedMlp(prefix, sizes.width, sizes.inner);
      return;
    }
    if (!fused) writer.Linear(prefix + "gate", sizes.width, sparse.experts);
    writer.Experts(
        prefix + "experts",
        {.count = sparse.experts, .width = sizes.width, .inner = inner},
        request.experts, ExpertNames::kProjections);
    if (fused) writer.Linear(prefix + "gate", sizes.width, sparse.experts);
  };
  return BuildDecoder(request, sizes, {.attention = attention, .mlp = mlp});
}

namespace {

// Layers for tokens further ahead; DeepSeek-V3 has one.
constexpr int64_t kMaxPredictors = 64;

// Multi-head latent attention (DeepSeek-V2): keys and values, and queries where
// query_rank is not 0, pass through a narrow layer.
struct LatentAttention {
  int64_t width = 0;
  int64_t heads = 0;
  int64_t query_rank = 0;
  int64_t key_value_rank = 0;
  int64_t plain_dim = 0;   // of a head's query and key, not rotated
  int64_t rotary_dim = 0;  // the same, rotated
  int64_t value_dim = 0;
  bool bias = false;

  void AddTo(const std::string& prefix, ParamWriter& writer) const {
    const int64_t queries = heads * (plain_dim + rotary_dim);
    if (query_rank == 0) {
      writer.Linear(prefix + "q_proj", width, queries);
    } else {
      writer.Linear(prefix + "q_a_proj", width, query_rank, bias);
      writer.RmsNorm(prefix + "q_a_layernorm", query_rank);
      writer.Linear(prefix + "q_b_proj", query_rank, queries);
    }
    writer.Linear(prefix + "kv_a_proj_with_mqa", width,
                  key_value_rank + rotary_dim, bias);
    writer.RmsNorm(prefix + "kv_a_layernorm", key_value_rank);
    writer.Linear(prefix + "kv_b_proj", key_value_rank,
                  heads * (plain_dim + value_dim));
    writer.Linear(prefix + "o_proj", heads * value_dim, width, bias);
  }
};

Result<LatentAttention> ReadLatentAttention(const ConfigValues& config,
                                            int64_t width) {
  LatentAttention attention = {.width = width};
  CASTOR_ASSIGN_OR_RETURN(
      attention.heads,
      ReadHeads(config, "num_attention_heads", "num_attention_heads", 128));
  CASTOR_ASSIGN_OR_RETURN(attention.query_rank,
                          config.IntOrNull("q_lora_rank", 1536, 0));
  CASTOR_ASSIGN_OR_RETURN(attention.key_value_rank,
                          config.Int("kv_lora_rank", 512));
  CASTOR_ASSIGN_OR_RETURN(attention.plain_dim,
                          config.Int("qk_nope_head_dim", 128));
  CASTOR_ASSIGN_OR_RETURN(attention.rotary_dim,
                          config.Int("qk_rope_head_dim", 64));
  CASTOR_ASSIGN_OR_RETURN(attention.value_dim, config.Int("v_head_dim", 128));
  CASTOR_ASSIGN_OR_RETURN(attention.bias, config.Bool("attention_bias", false));
  return attention;
}

}  // namespace

Result<FamilyModel> BuildDeepseekV3(const FamilyRequest& request) {
  const ConfigValues& config = request.config;
  DecoderSizes sizes;
  CASTOR_ASSIGN_OR_RETURN(sizes.vocab, config.Int("vocab_size", 129280));
  CASTOR_ASSIGN_OR_RETURN(sizes.width, config.Int("hidden_size", 7168));
  CASTOR_ASSIGN_OR_RETURN(sizes.inner, config.Int("intermediate_size", 18432));
  CASTOR_ASSIGN_OR_RETURN(sizes.layers, ReadLayers(config, "num_hidden_layers",
                                                   "num_hidden_layers", 61));
  CASTOR_ASSIGN_OR_RETURN(sizes.tied,
                          config.Bool("tie_word_embeddings", false));
  CASTOR_ASSIGN_OR_RETURN(const LatentAttention latent,
                          ReadLatentAttention(config, sizes.width));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t experts,
      ReadExperts(config, "n_routed_experts", "num_local_experts", 256, 1,
                  sizes.layers));
  CASTOR_ASSIGN_OR_RETURN(const int64_t shared,
                          config.Int("n_shared_experts", 1));
  CASTOR_RETURN_IF_ERROR(
      RefuseMoreThan(kMaxExperts, "n_shared_experts", shared));
  CASTOR_ASSIGN_OR_RETURN(const int64_t inner,
                          config.Int("moe_intermediate_size", 2048));
  CASTOR_ASSIGN_OR_RETURN(const int64_t dense,
                          config.Int("first_k_dense_replace", 3, 0));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t predictors,
      config.IntAlias("num_nextn_predict_layers", "num_mtp_layers", 1, 0));
  CASTOR_RETURN_IF_ERROR(
      RefuseMoreThan(kMaxPredictors, "num_nextn_predict_layers", predictors));

  const AddToLayer attention = [&](int64_t, const std::string& layer,
                                   ParamWriter& writer) {
    latent.AddTo(layer + "self_attn.", writer);
  };
  // The router's e_score_correction_bias is a buffer: no optimizer has it.
  const AddToLayer mlp = [&](int64_t index, const std::string& layer,
                             ParamWriter& writer) {
    const std::string prefix = layer + "mlp.";
    if (index < dense) {
      writer.GatedMlp(prefix, sizes.width, sizes.inner);
      return;
    }
    writer.Experts(prefix + "experts",
                   {.count = experts, .width = sizes.width, .inner = inner},
                   request.experts, ExpertNames::kProjections);
    writer.Linear(prefix + "gate", sizes.width, experts);
    writer.GatedMlp(prefix + "shared_experts.", sizes.width, inner * shared);
  };
  FamilyModel model =
      BuildDecoder(request, sizes, {.attention = attention, .mlp = mlp});
  // Layers that predict further tokens follow in the files; the model of the
  // reference code leaves them out.
  for (int64_t i = 0; i < predictors; ++i) {
    model.ignored_prefixes.push_back(
        fmt::format("model.layers.{}.", sizes.layers + i));
  }
  return model;
}

}  // namespace castor
