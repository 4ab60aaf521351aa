// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include "tools/models/decoder_family.h"
#include "tools/models/family_builders.h"

namespace castor {
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
