// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include "tools/models/decoder_family.h"
#include "tools/models/family_builders.h"

namespace castor {

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

}  // namespace castor
