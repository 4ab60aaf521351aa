// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include "tools/models/family_model.h"

namespace castor {
namespace {

// What tells the families of this shape apart where their configs are silent.
struct LlamaDefaults {
  int64_t intermediate_size;
  int64_t key_value_heads;  // 0: as many as heads
  bool has_bias_keys;       // attention_bias and mlp_bias mean something
};

void AddLinear(const std::string& name, int64_t in, int64_t out, bool bias,
               DType dtype, FamilyModel* model) {
  model->Add(name + ".weight", {out, in}, dtype);
  if (bias) model->Add(name + ".bias", {out}, dtype);
}

Result<FamilyModel> Build(const ConfigValues& config, DType dtype,
                          const LlamaDefaults& defaults) {
  CASTOR_ASSIGN_OR_RETURN(const int64_t vocab, config.Int("vocab_size", 32000));
  CASTOR_ASSIGN_OR_RETURN(const int64_t width, config.Int("hidden_size", 4096));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t inner,
      config.Int("intermediate_size", defaults.intermediate_size));
  CASTOR_ASSIGN_OR_RETURN(const int64_t layers,
                          config.Int("num_hidden_layers", 32, 0));
  CASTOR_ASSIGN_OR_RETURN(const int64_t heads,
                          config.Int("num_attention_heads", 32));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t key_value_heads,
      config.IntOrNull(
          "num_key_value_heads",
          defaults.key_value_heads == 0 ? heads : defaults.key_value_heads,
          heads));
  CASTOR_ASSIGN_OR_RETURN(const int64_t given_head_dim,
                          config.IntOrNull("head_dim", 0, 0));
  CASTOR_ASSIGN_OR_RETURN(const bool tied,
                          config.Bool("tie_word_embeddings", false));
  bool attention_bias = false;
  bool mlp_bias = false;
  if (defaults.has_bias_keys) {
    CASTOR_ASSIGN_OR_RETURN(attention_bias,
                            config.Bool("attention_bias", false));
    CASTOR_ASSIGN_OR_RETURN(mlp_bias, config.Bool("mlp_bias", false));
  }
  if (layers > kMaxLayers) {
    return Malformed(
        fmt::format("num_hidden_layers is {}; more than {} is refused", layers,
                    kMaxLayers));
  }
  if (given_head_dim == 0 && width % heads != 0) {
    return Malformed(
        fmt::format("hidden_size {} is not a multiple of num_attention_heads "
                    "{}, and head_dim is not given",
                    width, heads));
  }
  if (heads % key_value_heads != 0) {
    return Malformed(
        fmt::format("num_attention_heads {} is not a multiple of "
                    "num_key_value_heads {}: no such attention exists",
                    heads, key_value_heads));
  }
  const int64_t head_dim = given_head_dim == 0 ? width / heads : given_head_dim;

  FamilyModel model;
  model.base_prefix = "model.";
  model.Add("model.embed_tokens.weight", {vocab, width}, dtype);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const std::string attention = layer + "self_attn.";
    AddLinear(attention + "q_proj", width, heads * head_dim, attention_bias,
              dtype, &model);
    AddLinear(attention + "k_proj", width, key_value_heads * head_dim,
              attention_bias, dtype, &model);
    AddLinear(attention + "v_proj", width, key_value_heads * head_dim,
              attention_bias, dtype, &model);
    AddLinear(attention + "o_proj", heads * head_dim, width, attention_bias,
              dtype, &model);
    AddLinear(layer + "mlp.gate_proj", width, inner, mlp_bias, dtype, &model);
    AddLinear(layer + "mlp.up_proj", width, inner, mlp_bias, dtype, &model);
    AddLinear(layer + "mlp.down_proj", inner, width, mlp_bias, dtype, &model);
    model.Add(layer + "input_layernorm.weight", {width}, dtype);
    model.Add(layer + "post_attention_layernorm.weight", {width}, dtype);
  }
  model.Add("model.norm.weight", {width}, dtype);
  if (tied) {
    model.tied_name = "lm_head.weight";
    model.tied_to = "model.embed_tokens.weight";
  } else {
    model.Add("lm_head.weight", {vocab, width}, dtype);
  }
  return model;
}

}  // namespace

Result<FamilyModel> BuildLlama(const ConfigValues& config, DType dtype) {
  return Build(config, dtype,
               {.intermediate_size = 11008,
                .key_value_heads = 0,
                .has_bias_keys = true});
}

Result<FamilyModel> BuildMistral(const ConfigValues& config, DType dtype) {
  return Build(config, dtype,
               {.intermediate_size = 14336,
                .key_value_heads = 8,
                .has_bias_keys = false});
}

}  // namespace castor
