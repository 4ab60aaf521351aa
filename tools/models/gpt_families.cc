// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// GPT-2, and those that came of it: GPT-NeoX, OPT, Falcon.

#include <fmt/format.h>

#include "tools/models/family_builders.h"
#include "tools/models/family_parts.h"

namespace castor {
Result<FamilyModel> BuildGpt2(const FamilyRequest& request) {
  const ConfigValues& config = request.config;
  CASTOR_ASSIGN_OR_RETURN(const int64_t vocab, config.Int("vocab_size", 50257));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t positions,
      config.IntAlias("n_positions", "max_position_embeddings", 1024));
  CASTOR_ASSIGN_OR_RETURN(const int64_t width,
                          config.IntAlias("n_embd", "hidden_size", 768));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t layers,
      ReadLayers(config, "n_layer", "num_hidden_layers", 12));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t heads,
      ReadHeads(config, "n_head", "num_attention_heads", 12));
  CASTOR_ASSIGN_OR_RETURN(const int64_t inner,
                          config.IntOrNull("n_inner", 4 * width, 4 * width));
  CASTOR_ASSIGN_OR_RETURN(const bool tied,
                          config.Bool("tie_word_embeddings", true));
  CASTOR_ASSIGN_OR_RETURN(const bool cross,
                          config.Bool("add_cross_attention", false));
  CASTOR_RETURN_IF_ERROR(RefuseUnevenHeads("n_embd", width, "n_head", heads));

  FamilyModel model;
  model.base_prefix = "transformer.";
  ParamWriter writer(request.dtype, &model.params);
  writer.Add("transformer.wte.weight", {vocab, width});
  writer.Add("transformer.wpe.weight", {positions, width});
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("transformer.h.{}.", i);
    writer.LayerNorm(layer + "ln_1", width);
    writer.Conv1d(layer + "attn.c_attn", width, 3 * width);
    writer.Conv1d(layer + "attn.c_proj", width, width);
    writer.LayerNorm(layer + "ln_2", width);
    if (cross) {
      const std::string attention = layer + "crossattention.";
      writer.Conv1d(attention + "c_attn", width, 2 * width);
      writer.Conv1d(attention + "q_attn", width, width);
      writer.Conv1d(attention + "c_proj", width, width);
      writer.LayerNorm(layer + "ln_cross_attn", width);
    }
    writer.Conv1d(layer + "mlp.c_fc", width, inner);
    writer.Conv1d(layer + "mlp.c_proj", inner, width);
  }
  writer.LayerNorm("transformer.ln_f", width);
  AddHead("lm_head.weight", "transformer.wte.weight", vocab, width, tied,
          writer, model);
  return model;
}

Result<FamilyModel> BuildGptNeox(const FamilyRequest& request) {
  const ConfigValues& config = request.config;
  CASTOR_ASSIGN_OR_RETURN(const int64_t vocab, config.Int("vocab_size", 50432));
  CASTOR_ASSIGN_OR_RETURN(const int64_t width, config.Int("hidden_size", 6144));
  CASTOR_ASSIGN_OR_RETURN(const int64_t inner,
                          config.Int("intermediate_size", 24576));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t layers,
      ReadLayers(config, "num_hidden_layers", "num_hidden_layers", 44));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t heads,
      ReadHeads(config, "num_attention_heads", "num_attention_heads", 64));
  CASTOR_ASSIGN_OR_RETURN(const bool bias, config.Bool("attention_bias", true));
  CASTOR_ASSIGN_OR_RETURN(const bool tied,
                          config.Bool("tie_word_embeddings", false));
  CASTOR_RETURN_IF_ERROR(
      RefuseUnevenHeads("hidden_size", width, "num_attention_heads", heads));

  FamilyModel model;
  model.base_prefix = "gpt_neox.";
  // The head's name before Transformers v5, and in files.
  model.spellings = {{"embed_out.", "lm_head."}};
  ParamWriter writer(request.dtype, &model.params);
  writer.Add("gpt_neox.embed_in.weight", {vocab, width});
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("gpt_neox.layers.{}.", i);
    writer.LayerNorm(layer + "input_layernorm", width);
    writer.LayerNorm(layer + "post_attention_layernorm", width);
    writer.Linear(layer + "attention.query_key_value", width, 3 * width, bias);
    writer.Linear(layer + "attention.dense", width, width, bias);
    writer.Linear(layer + "mlp.dense_h_to_4h", width, inner, true);
    writer.Linear(layer + "mlp.dense_4h_to_h", inner, width, true);
  }
  writer.LayerNorm("gpt_neox.final_layer_norm", width);
  AddHead("lm_head.weight", "gpt_neox.embed_in.weight", vocab, width, tied,
          writer, model);
  return model;
}

namespace {

// The table of positions begins with two rows that padding once had.
constexpr int64_t kPositionOffset = 2;

}  // namespace

Result<FamilyModel> BuildOpt(const FamilyRequest& request) {
  const ConfigValues& config = request.config;
  CASTOR_ASSIGN_OR_RETURN(const int64_t vocab, config.Int("vocab_size", 50272));
  CASTOR_ASSIGN_OR_RETURN(const int64_t width, config.Int("hidden_size", 768));
  CASTOR_ASSIGN_OR_RETURN(const int64_t inner, config.Int("ffn_dim", 3072));
  CASTOR_ASSIGN_OR_RETURN(const int64_t positions,
                          config.Int("max_position_embeddings", 2048));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t word_width,
      config.IntOrNull("word_embed_proj_dim", width, width));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t layers,
      ReadLayers(config, "num_hidden_layers", "num_hidden_layers", 12));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t heads,
      ReadHeads(config, "num_attention_heads", "num_attention_heads", 12));
  CASTOR_ASSIGN_OR_RETURN(const bool norm_before,
                          config.Bool("do_layer_norm_before", true));
  CASTOR_ASSIGN_OR_RETURN(const bool no_last_norm,
                          config.Bool("_remove_final_layer_norm", false));
  CASTOR_ASSIGN_OR_RETURN(const bool bias, config.Bool("enable_bias", true));
  CASTOR_ASSIGN_OR_RETURN(const bool affine,
                          config.Bool("layer_norm_elementwise_affine", true));
  CASTOR_ASSIGN_OR_RETURN(const bool tied,
                          config.Bool("tie_word_embeddings", true));
  CASTOR_RETURN_IF_ERROR(
      RefuseUnevenHeads("hidden_size", width, "num_attention_heads", heads));

  FamilyModel model;
  model.base_prefix = "model.";
  ParamWriter writer(request.dtype, &model.params);
  const auto add_norm = [&](const std::string& name) {
    if (affine) writer.LayerNorm(name, width);
  };
  const std::string decoder = "model.decoder.";
  writer.Add(decoder + "embed_tokens.weight", {vocab, word_width});
  writer.Add(decoder + "embed_positions.weight",
             {positions + kPositionOffset, width});
  if (word_width != width) {
    writer.Linear(decoder + "project_out", width, word_width);
    writer.Linear(decoder + "project_in", word_width, width);
  }
  if (norm_before && !no_last_norm) add_norm(decoder + "final_layer_norm");
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("{}layers.{}.", decoder, i);
    for (const std::string name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
      writer.Linear(layer + "self_attn." + name, width, width, bias);
    }
    add_norm(layer + "self_attn_layer_norm");
    writer.Linear(layer + "fc1", width, inner, bias);
    writer.Linear(layer + "fc2", inner, width, bias);
    add_norm(layer + "final_layer_norm");
  }
  AddHead("lm_head.weight", decoder + "embed_tokens.weight", vocab, word_width,
          tied, writer, model);
  return model;
}

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
