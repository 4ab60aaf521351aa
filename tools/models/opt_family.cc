// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include "tools/models/decoder_family.h"
#include "tools/models/family_builders.h"

namespace castor {
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

}  // namespace castor
