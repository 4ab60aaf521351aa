// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Families with an encoder: BERT, T5.

#include <fmt/format.h>

#include "chunk/base/quote.h"
#include "tools/models/family_builders.h"
#include "tools/models/family_parts.h"

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

namespace {

struct T5Sizes {
  int64_t width = 0;
  int64_t inner = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t buckets = 0;  // of relative positions
  bool gated = false;
};

// "relu" and "gated-gelu", say: whether the MLP has a gate.
Result<bool> ReadGate(const ConfigValues& config) {
  CASTOR_ASSIGN_OR_RETURN(const std::string kind,
                          config.String("feed_forward_proj", "relu"));
  const size_t dash = kind.find('-');
  if (dash == kind.npos) return false;
  if (kind.substr(0, dash) != "gated" ||
      kind.find('-', dash + 1) != kind.npos) {
    return Malformed(fmt::format(
        "\"feed_forward_proj\" is {} where an activation's name belongs, with "
        "or without gated- before it",
        Quoted(kind)));
  }
  return true;
}

Result<T5Sizes> ReadT5(const ConfigValues& config) {
  T5Sizes sizes;
  CASTOR_ASSIGN_OR_RETURN(sizes.width,
                          config.IntAlias("d_model", "hidden_size", 512));
  CASTOR_ASSIGN_OR_RETURN(sizes.inner, config.Int("d_ff", 2048));
  CASTOR_ASSIGN_OR_RETURN(
      sizes.heads, ReadHeads(config, "num_heads", "num_attention_heads", 8));
  CASTOR_ASSIGN_OR_RETURN(sizes.head_dim,
                          config.IntAlias("d_kv", "head_dim", 64));
  CASTOR_ASSIGN_OR_RETURN(sizes.buckets,
                          config.Int("relative_attention_num_buckets", 32));
  CASTOR_ASSIGN_OR_RETURN(sizes.gated, ReadGate(config));
  return sizes;
}

void AddT5Attention(const std::string& prefix, const T5Sizes& sizes,
                    bool relative_bias, ParamWriter& writer) {
  const int64_t inner = sizes.heads * sizes.head_dim;
  for (const std::string name : {"q", "k", "v"}) {
    writer.Linear(prefix + name, sizes.width, inner);
  }
  writer.Linear(prefix + "o", inner, sizes.width);
  if (relative_bias) {
    writer.Add(prefix + "relative_attention_bias.weight",
               {sizes.buckets, sizes.heads});
  }
}

// `stack` is "encoder." or "decoder.", which attends to the encoder as well.
void AddT5Stack(const std::string& stack, const T5Sizes& sizes, int64_t layers,
                bool attends_to_encoder, ParamWriter& writer) {
  for (int64_t i = 0; i < layers; ++i) {
    int part = 0;
    const auto next = [&] {
      return fmt::format("{}block.{}.layer.{}.", stack, i, part++);
    };
    const std::string self = next();
    AddT5Attention(self + "SelfAttention.", sizes, i == 0, writer);
    writer.RmsNorm(self + "layer_norm", sizes.width);
    if (attends_to_encoder) {
      const std::string cross = next();
      AddT5Attention(cross + "EncDecAttention.", sizes, false, writer);
      writer.RmsNorm(cross + "layer_norm", sizes.width);
    }
    const std::string mlp = next();
    if (sizes.gated) {
      writer.Linear(mlp + "DenseReluDense.wi_0", sizes.width, sizes.inner);
      writer.Linear(mlp + "DenseReluDense.wi_1", sizes.width, sizes.inner);
    } else {
      writer.Linear(mlp + "DenseReluDense.wi", sizes.width, sizes.inner);
    }
    writer.Linear(mlp + "DenseReluDense.wo", sizes.inner, sizes.width);
    writer.RmsNorm(mlp + "layer_norm", sizes.width);
  }
  writer.RmsNorm(stack + "final_layer_norm", sizes.width);
}

}  // namespace

Result<FamilyModel> BuildT5(const FamilyRequest& request) {
  const ConfigValues& config = request.config;
  CASTOR_ASSIGN_OR_RETURN(const T5Sizes sizes, ReadT5(config));
  CASTOR_ASSIGN_OR_RETURN(const int64_t vocab, config.Int("vocab_size", 32128));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t layers,
      ReadLayers(config, "num_layers", "num_hidden_layers", 6));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t decoder_layers,
      config.IntOrNull("num_decoder_layers", layers, layers));
  CASTOR_RETURN_IF_ERROR(
      RefuseMoreThan(kMaxLayers, "num_decoder_layers", decoder_layers));
  CASTOR_ASSIGN_OR_RETURN(const bool tied,
                          config.Bool("tie_word_embeddings", true));
  const bool decoder = request.architecture != "T5EncoderModel";
  const bool head = request.architecture == "T5ForConditionalGeneration";

  FamilyModel model;
  ParamWriter writer(request.dtype, &model.params);
  const std::string shared = "shared.weight";
  writer.Add(shared, {vocab, sizes.width});
  // The stacks' embeddings are one, whatever tie_word_embeddings says.
  model.tied.push_back({"encoder.embed_tokens.weight", shared});
  AddT5Stack("encoder.", sizes, layers, false, writer);
  if (decoder) {
    model.tied.push_back({"decoder.embed_tokens.weight", shared});
    // The first T5 files have positions here too, which nothing reads.
    model.ignored_prefixes = {
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias."};
    AddT5Stack("decoder.", sizes, decoder_layers, true, writer);
  }
  if (head) {
    AddHead("lm_head.weight", shared, vocab, sizes.width, tied, writer, model);
  }
  return model;
}

}  // namespace castor
