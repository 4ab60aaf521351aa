// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include "tools/models/family_model.h"

namespace castor {
namespace {

// GPT-2's Conv1D keeps its weight as (in, out).
void AddConv1d(const std::string& name, int64_t in, int64_t out, DType dtype,
               FamilyModel* model) {
  model->Add(name + ".weight", {in, out}, dtype);
  model->Add(name + ".bias", {out}, dtype);
}

void AddLayerNorm(const std::string& name, int64_t width, DType dtype,
                  FamilyModel* model) {
  model->Add(name + ".weight", {width}, dtype);
  model->Add(name + ".bias", {width}, dtype);
}

}  // namespace

Result<FamilyModel> BuildGpt2(const ConfigValues& config, DType dtype) {
  CASTOR_ASSIGN_OR_RETURN(const int64_t vocab, config.Int("vocab_size", 50257));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t positions,
      config.IntAlias("n_positions", "max_position_embeddings", 1024));
  CASTOR_ASSIGN_OR_RETURN(const int64_t width,
                          config.IntAlias("n_embd", "hidden_size", 768));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t layers,
      config.IntAlias("n_layer", "num_hidden_layers", 12, 0));
  CASTOR_ASSIGN_OR_RETURN(const int64_t heads,
                          config.IntAlias("n_head", "num_attention_heads", 12));
  CASTOR_ASSIGN_OR_RETURN(const int64_t inner,
                          config.IntOrNull("n_inner", 4 * width, 4 * width));
  CASTOR_ASSIGN_OR_RETURN(const bool tied,
                          config.Bool("tie_word_embeddings", true));
  CASTOR_ASSIGN_OR_RETURN(const bool cross,
                          config.Bool("add_cross_attention", false));
  if (layers > kMaxLayers) {
    return Malformed(fmt::format("n_layer is {}; more than {} is refused",
                                 layers, kMaxLayers));
  }
  if (width % heads != 0) {
    return Malformed(fmt::format(
        "n_embd {} is not a multiple of n_head {}: no such attention exists",
        width, heads));
  }

  FamilyModel model;
  model.base_prefix = "transformer.";
  model.Add("transformer.wte.weight", {vocab, width}, dtype);
  model.Add("transformer.wpe.weight", {positions, width}, dtype);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("transformer.h.{}.", i);
    AddLayerNorm(layer + "ln_1", width, dtype, &model);
    AddConv1d(layer + "attn.c_attn", width, 3 * width, dtype, &model);
    AddConv1d(layer + "attn.c_proj", width, width, dtype, &model);
    AddLayerNorm(layer + "ln_2", width, dtype, &model);
    if (cross) {
      const std::string attention = layer + "crossattention.";
      AddConv1d(attention + "c_attn", width, 2 * width, dtype, &model);
      AddConv1d(attention + "q_attn", width, width, dtype, &model);
      AddConv1d(attention + "c_proj", width, width, dtype, &model);
      AddLayerNorm(layer + "ln_cross_attn", width, dtype, &model);
    }
    AddConv1d(layer + "mlp.c_fc", width, inner, dtype, &model);
    AddConv1d(layer + "mlp.c_proj", inner, width, dtype, &model);
  }
  AddLayerNorm("transformer.ln_f", width, dtype, &model);
  if (tied) {
    model.tied_name = "lm_head.weight";
    model.tied_to = "transformer.wte.weight";
  } else {
    model.Add("lm_head.weight", {vocab, width}, dtype);
  }
  return model;
}

}  // namespace castor
