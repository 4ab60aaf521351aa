// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/family_parts.h"

#include <fmt/format.h>

#include <utility>

namespace castor {

Status RefuseMoreThan(int64_t most, std::string_view key, int64_t value) {
  if (value <= most) return OkStatus();
  return Malformed(
      fmt::format("{} is {}; more than {} is refused", key, value, most));
}

Status RefuseUnevenHeads(std::string_view width_key, int64_t width,
                         std::string_view heads_key, int64_t heads) {
  if (width % heads == 0) return OkStatus();
  return Malformed(
      fmt::format("{} {} is not a multiple of {} {}: no such attention exists",
                  width_key, width, heads_key, heads));
}

Result<int64_t> ReadLayers(const ConfigValues& config, const std::string& key,
                           const std::string& alias, int64_t fallback) {
  CASTOR_ASSIGN_OR_RETURN(const int64_t layers,
                          config.IntAlias(key, alias, fallback, 0));
  CASTOR_RETURN_IF_ERROR(RefuseMoreThan(kMaxLayers, key, layers));
  return layers;
}

Result<int64_t> ReadHeads(const ConfigValues& config, const std::string& key,
                          const std::string& alias, int64_t fallback) {
  CASTOR_ASSIGN_OR_RETURN(const int64_t heads,
                          config.IntAlias(key, alias, fallback));
  CASTOR_RETURN_IF_ERROR(RefuseMoreThan(kMaxHeads, key, heads));
  return heads;
}

Result<int64_t> ReadExperts(const ConfigValues& config, const std::string& key,
                            const std::string& alias, int64_t fallback,
                            int64_t least, int64_t layers) {
  CASTOR_ASSIGN_OR_RETURN(const int64_t experts,
                          config.IntAlias(key, alias, fallback, least));
  CASTOR_RETURN_IF_ERROR(RefuseMoreThan(kMaxExperts, key, experts));
  if (3 * experts * layers > kMaxFamilyTensors) {
    return Malformed(
        fmt::format("{} is {}, and with {} layers that makes more than {} "
                    "tensors; no such model is known",
                    key, experts, layers, kMaxFamilyTensors));
  }
  return experts;
}

Result<AttentionSizes> ReadAttention(const ConfigValues& config, int64_t width,
                                     const AttentionSizes& defaults) {
  AttentionSizes sizes;
  CASTOR_ASSIGN_OR_RETURN(sizes.heads,
                          ReadHeads(config, "num_attention_heads",
                                    "num_attention_heads", defaults.heads));
  const int64_t key_value_heads =
      defaults.key_value_heads == 0 ? sizes.heads : defaults.key_value_heads;
  CASTOR_ASSIGN_OR_RETURN(
      sizes.key_value_heads,
      config.IntOrNull("num_key_value_heads", key_value_heads, sizes.heads));
  if (sizes.heads % sizes.key_value_heads != 0) {
    return Malformed(
        fmt::format("num_attention_heads {} is not a multiple of "
                    "num_key_value_heads {}: no such attention exists",
                    sizes.heads, sizes.key_value_heads));
  }
  CASTOR_ASSIGN_OR_RETURN(sizes.head_dim,
                          config.IntOrNull("head_dim", defaults.head_dim, 0));
  if (sizes.head_dim != 0) return sizes;
  if (width % sizes.heads != 0) {
    return Malformed(
        fmt::format("hidden_size {} is not a multiple of num_attention_heads "
                    "{}, and head_dim is not given",
                    width, sizes.heads));
  }
  sizes.head_dim = width / sizes.heads;
  return sizes;
}

ParamWriter::ParamWriter(DType dtype, std::vector<ParamSpec>* params)
    : dtype_(dtype), params_(params) {}

void ParamWriter::Add(std::string name, std::vector<int64_t> shape) {
  params_->push_back({std::move(name), std::move(shape), dtype_});
}

void ParamWriter::Linear(const std::string& name, int64_t in, int64_t out,
                         bool bias) {
  Add(name + ".weight", {out, in});
  if (bias) Add(name + ".bias", {out});
}

void ParamWriter::Conv1d(const std::string& name, int64_t in, int64_t out) {
  Add(name + ".weight", {in, out});
  Add(name + ".bias", {out});
}

void ParamWriter::RmsNorm(const std::string& name, int64_t width) {
  Add(name + ".weight", {width});
}

void ParamWriter::LayerNorm(const std::string& name, int64_t width) {
  Add(name + ".weight", {width});
  Add(name + ".bias", {width});
}

void ParamWriter::GatedMlp(const std::string& prefix, int64_t width,
                           int64_t inner, bool bias) {
  Linear(prefix + "gate_proj", width, inner, bias);
  Linear(prefix + "up_proj", width, inner, bias);
  Linear(prefix + "down_proj", inner, width, bias);
}

void ParamWriter::Experts(const std::string& name, const ExpertSizes& sizes,
                          ExpertLayout layout, ExpertNames names) {
  const auto& [count, width, inner] = sizes;
  if (layout == ExpertLayout::kFused) {
    Add(name + ".gate_up_proj", {count, 2 * inner, width});
    Add(name + ".down_proj", {count, width, inner});
    return;
  }
  for (int64_t expert = 0; expert < count; ++expert) {
    const std::string prefix = fmt::format("{}.{}.", name, expert);
    if (names == ExpertNames::kProjections) {
      GatedMlp(prefix, width, inner);
    } else {
      Linear(prefix + "w1", width, inner);
      Linear(prefix + "w2", inner, width);
      Linear(prefix + "w3", width, inner);
    }
  }
}

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
