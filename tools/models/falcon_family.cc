// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include "tools/models/decoder_family.h"
#include "tools/models/family_builders.h"

namespace castor {
namespace {

// Falcon-40B's layers, Falcon-7B's (one key and value for all heads) or those
// of Falcon-RW (a key and value per head).
struct FalconLayer {
  int64_t width = 0;
  int64_t query_key_value = 0;  // width of the one matrix for all three
  int64_t inner = 0;
  bool bias = false;
  bool parallel = true;   // MLP beside the attention, not after it
  bool two_norms = true;  // one each, where parallel

  void AddTo(const std::string& prefix, ParamWriter& writer) const {
    writer.Linear(prefix + "self_attention.query_key_value", width,
                  query_key_value, bias);
    writer.Linear(prefix + "self_attention.dense", width, width, bias);
    writer.Linear(prefix + "mlp.dense_h_to_4h", width, inner, bias);
    writer.Linear(prefix + "mlp.dense_4h_to_h", inner, width, bias);
    if (!parallel) {
      writer.LayerNorm(prefix + "post_attention_layernorm", width);
      writer.LayerNorm(prefix + "input_layernorm", width);
    } else if (two_norms) {
      writer.LayerNorm(prefix + "ln_attn", width);
      writer.LayerNorm(prefix + "ln_mlp", width);
    } else {
      writer.LayerNorm(prefix + "input_layernorm", width);
    }
  }
};

Result<FalconLayer> ReadLayer(const ConfigValues& config) {
  FalconLayer layer;
  CASTOR_ASSIGN_OR_RETURN(const int64_t hidden,
                          config.Int("hidden_size", 4544));
  // An older name, which wins where both are given.
  CASTOR_ASSIGN_OR_RETURN(layer.width,
                          config.IntOrNull("n_embed", hidden, hidden));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t heads,
      ReadHeads(config, "num_attention_heads", "num_attention_heads", 71));
  CASTOR_RETURN_IF_ERROR(RefuseUnevenHeads("hidden_size", layer.width,
                                           "num_attention_heads", heads));
  CASTOR_ASSIGN_OR_RETURN(const int64_t key_value_heads,
                          config.IntOrNull("num_kv_heads", heads, heads));
  CASTOR_RETURN_IF_ERROR(
      RefuseMoreThan(heads, "num_kv_heads", key_value_heads));
  CASTOR_ASSIGN_OR_RETURN(
      layer.inner,
      config.IntOrNull("ffn_hidden_size", 4 * layer.width, 4 * layer.width));
  CASTOR_ASSIGN_OR_RETURN(layer.bias, config.BoolOrNull("bias", false));
  CASTOR_ASSIGN_OR_RETURN(layer.parallel,
                          config.BoolOrNull("parallel_attn", true));
  CASTOR_ASSIGN_OR_RETURN(const bool multi_query,
                          config.BoolOrNull("multi_query", true));
  CASTOR_ASSIGN_OR_RETURN(const bool new_decoder,
                          config.BoolOrNull("new_decoder_architecture", false));
  const int64_t default_norms = new_decoder ? 2 : 1;
  CASTOR_ASSIGN_OR_RETURN(const int64_t norms,
                          config.IntOrNull("num_ln_in_parallel_attn",
                                           default_norms, default_norms));
  layer.two_norms = norms == 2;
  const int64_t head_dim = layer.width / heads;
  if (new_decoder) {
    layer.query_key_value = (heads + 2 * key_value_heads) * head_dim;
  } else if (multi_query) {
    layer.query_key_value = layer.width + 2 * head_dim;
  } else {
    layer.query_key_value = 3 * layer.width;
  }
  return layer;
}

}  // namespace

Result<FamilyModel> BuildFalcon(const FamilyRequest& request) {
  const ConfigValues& config = request.config;
  CASTOR_ASSIGN_OR_RETURN(const int64_t vocab, config.Int("vocab_size", 65024));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t layers,
      ReadLayers(config, "num_hidden_layers", "num_hidden_layers", 32));
  CASTOR_ASSIGN_OR_RETURN(const FalconLayer layer, ReadLayer(config));
  CASTOR_ASSIGN_OR_RETURN(const bool tied,
                          config.Bool("tie_word_embeddings", true));
  // Positions are computed, be they rotary or ALiBi: neither has a parameter.
  CASTOR_RETURN_IF_ERROR(config.BoolOrNull("alibi", false).status());

  FamilyModel model;
  model.base_prefix = "transformer.";
  ParamWriter writer(request.dtype, &model.params);
  writer.Add("transformer.word_embeddings.weight", {vocab, layer.width});
  for (int64_t i = 0; i < layers; ++i) {
    layer.AddTo(fmt::format("transformer.h.{}.", i), writer);
  }
  writer.LayerNorm("transformer.ln_f", layer.width);
  AddHead("lm_head.weight", "transformer.word_embeddings.weight", vocab,
          layer.width, tied, writer, model);
  return model;
}

}  // namespace castor
