// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include "tools/models/decoder_family.h"
#include "tools/models/family_builders.h"

namespace castor {
namespace {

struct BertSizes {
  int64_t vocab = 0;
  int64_t width = 0;
  int64_t inner = 0;
  int64_t layers = 0;
  int64_t positions = 0;
  int64_t segments = 0;
  bool tied = false;
  bool cross = false;  // attends to another model's output as well
};

Result<BertSizes> ReadBert(const ConfigValues& config) {
  BertSizes sizes;
  CASTOR_ASSIGN_OR_RETURN(sizes.vocab, config.Int("vocab_size", 30522));
  CASTOR_ASSIGN_OR_RETURN(sizes.width, config.Int("hidden_size", 768));
  CASTOR_ASSIGN_OR_RETURN(sizes.inner, config.Int("intermediate_size", 3072));
  CASTOR_ASSIGN_OR_RETURN(sizes.layers, ReadLayers(config, "num_hidden_layers",
                                                   "num_hidden_layers", 12));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t heads,
      ReadHeads(config, "num_attention_heads", "num_attention_heads", 12));
  CASTOR_ASSIGN_OR_RETURN(sizes.positions,
                          config.Int("max_position_embeddings", 512));
  CASTOR_ASSIGN_OR_RETURN(sizes.segments, config.Int("type_vocab_size", 2));
  CASTOR_ASSIGN_OR_RETURN(sizes.tied, config.Bool("tie_word_embeddings", true));
  CASTOR_ASSIGN_OR_RETURN(sizes.cross,
                          config.Bool("add_cross_attention", false));
  CASTOR_RETURN_IF_ERROR(RefuseUnevenHeads("hidden_size", sizes.width,
                                           "num_attention_heads", heads));
  return sizes;
}

void AddBertAttention(const std::string& prefix, int64_t width,
                      ParamWriter& writer) {
  for (const std::string name : {"self.query", "self.key", "self.value"}) {
    writer.Linear(prefix + name, width, width, true);
  }
  writer.Linear(prefix + "output.dense", width, width, true);
  writer.LayerNorm(prefix + "output.LayerNorm", width);
}

// All but heads and pooler. `prefix` is "bert.", or empty.
void AddBertBody(const std::string& prefix, const BertSizes& sizes,
                 ParamWriter& writer) {
  const int64_t width = sizes.width;
  const std::string embeddings = prefix + "embeddings.";
  writer.Add(embeddings + "word_embeddings.weight", {sizes.vocab, width});
  writer.Add(embeddings + "position_embeddings.weight",
             {sizes.positions, width});
  writer.Add(embeddings + "token_type_embeddings.weight",
             {sizes.segments, width});
  writer.LayerNorm(embeddings + "LayerNorm", width);
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string layer = fmt::format("{}encoder.layer.{}.", prefix, i);
    AddBertAttention(layer + "attention.", width, writer);
    if (sizes.cross) AddBertAttention(layer + "crossattention.", width, writer);
    writer.Linear(layer + "intermediate.dense", width, sizes.inner, true);
    writer.Linear(layer + "output.dense", sizes.inner, width, true);
    writer.LayerNorm(layer + "output.LayerNorm", width);
  }
}

// Guesses the masked words.
void AddBertPredictions(const BertSizes& sizes, ParamWriter& writer,
                        FamilyModel& model) {
  const std::string prefix = "cls.predictions.";
  writer.Add(prefix + "bias", {sizes.vocab});
  writer.Linear(prefix + "transform.dense", sizes.width, sizes.width, true);
  writer.LayerNorm(prefix + "transform.LayerNorm", sizes.width);
  if (sizes.tied) {
    model.tied = {{prefix + "decoder.weight",
                   model.base_prefix + "embeddings.word_embeddings.weight"},
                  {prefix + "decoder.bias", prefix + "bias"}};
  } else {
    writer.Linear(prefix + "decoder", sizes.width, sizes.vocab, true);
  }
}

}  // namespace

Result<FamilyModel> BuildBert(const FamilyRequest& request) {
  CASTOR_ASSIGN_OR_RETURN(const BertSizes sizes, ReadBert(request.config));
  const bool bare = request.architecture == "BertModel";
  const bool pretraining = request.architecture == "BertForPreTraining";
  FamilyModel model;
  model.base_prefix = bare ? "" : "bert.";
  // As files converted from TensorFlow have it.
  model.spellings = {{"LayerNorm.gamma", "LayerNorm.weight"},
                     {"LayerNorm.beta", "LayerNorm.bias"}};
  ParamWriter writer(request.dtype, &model.params);
  AddBertBody(model.base_prefix, sizes, writer);
  if (bare || pretraining) {
    writer.Linear(model.base_prefix + "pooler.dense", sizes.width, sizes.width,
                  true);
  }
  if (!bare) AddBertPredictions(sizes, writer, model);
  if (pretraining) {
    writer.Linear("cls.seq_relationship", sizes.width, 2, true);
  }
  return model;
}

}  // namespace castor
