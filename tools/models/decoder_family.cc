// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/decoder_family.h"

#include <fmt/format.h>

namespace castor {

Result<DecoderSizes> ReadDecoder(const ConfigValues& config,
                                 const DecoderDefaults& defaults) {
  DecoderSizes sizes;
  CASTOR_ASSIGN_OR_RETURN(sizes.vocab,
                          config.Int("vocab_size", defaults.vocab));
  CASTOR_ASSIGN_OR_RETURN(sizes.width,
                          config.Int("hidden_size", defaults.width));
  CASTOR_ASSIGN_OR_RETURN(sizes.inner,
                          config.Int("intermediate_size", defaults.inner));
  CASTOR_ASSIGN_OR_RETURN(
      sizes.layers, ReadLayers(config, "num_hidden_layers", "num_hidden_layers",
                               defaults.layers));
  CASTOR_ASSIGN_OR_RETURN(
      sizes.attention, ReadAttention(config, sizes.width, defaults.attention));
  CASTOR_ASSIGN_OR_RETURN(sizes.tied,
                          config.Bool("tie_word_embeddings", defaults.tied));
  return sizes;
}

void AddAttention(const std::string& prefix, int64_t width,
                  const AttentionSizes& sizes, const AttentionBiases& biases,
                  ParamWriter& writer) {
  const int64_t queries = sizes.heads * sizes.head_dim;
  const int64_t keys = sizes.key_value_heads * sizes.head_dim;
  writer.Linear(prefix + "q_proj", width, queries, biases.inputs);
  writer.Linear(prefix + "k_proj", width, keys, biases.inputs);
  writer.Linear(prefix + "v_proj", width, keys, biases.inputs);
  writer.Linear(prefix + "o_proj", queries, width, biases.output);
}

FamilyModel BuildDecoder(const FamilyRequest& request,
                         const DecoderSizes& sizes, const DecoderParts& parts) {
  FamilyModel model;
  model.base_prefix = "model.";
  ParamWriter writer(request.dtype, &model.params);
  writer.Add("model.embed_tokens.weight", {sizes.vocab, sizes.width});
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    parts.attention(i, layer, writer);
    parts.mlp(i, layer, writer);
    for (const std::string_view norm : parts.norms) {
      writer.RmsNorm(layer + std::string(norm), sizes.width);
    }
  }
  writer.RmsNorm("model.norm", sizes.width);
  AddHead("lm_head.weight", "model.embed_tokens.weight", sizes.vocab,
          sizes.width, sizes.tied, writer, model);
  return model;
}

void AddHead(const std::string& name, const std::string& embedding,
             int64_t vocab, int64_t width, bool tied, ParamWriter& writer,
             FamilyModel& model) {
  if (tied) {
    model.tied.push_back({name, embedding});
  } else {
    writer.Add(name, {vocab, width});
  }
}

}  // namespace castor
