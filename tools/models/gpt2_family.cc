// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include "tools/models/decoder_family.h"
#include "tools/models/family_builders.h"

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

}  // namespace castor
