// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/non_parameters.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"

namespace castor {
namespace {

std::optional<std::string> Reason(const std::string& name,
                                  const std::vector<int64_t>& shape = {16},
                                  DType dtype = DType::kF32) {
  return NonParameterReason(name, shape, dtype);
}

// What every name of `names` is dropped for.
void ExpectAll(std::optional<std::string> reason,
               const std::vector<std::string>& names,
               const std::vector<int64_t>& shape = {16},
               DType dtype = DType::kF32) {
  for (const std::string& name : names) {
    EXPECT_EQ(Reason(name, shape, dtype), reason) << name;
  }
}

// The names below are those of published checkpoints: gpt2, gpt-neo, gpt-neox,
// codegen, Swin.
TEST(NonParametersTest, TellsMasksFromBiases) {
  ExpectAll("attention mask",
            {"h.0.attn.bias", "transformer.h.0.attn.attention.bias",
             "gpt_neox.layers.0.attention.bias", "bias"},
            {1, 1, 1024, 1024});
  ExpectAll("attention mask",
            {"h.0.attn.masked_bias", "gpt_neox.layers.0.attention.masked_bias"},
            {});
  ExpectAll("attention mask", {"transformer.h.0.attn.causal_mask"},
            {1, 1, 8, 8}, DType::kU8);
  ExpectAll("attention mask", {"layers.0.blocks.1.attn_mask"}, {64, 49, 49});
  EXPECT_EQ(Reason("h.0.attn.c_attn.bias", {2304}), std::nullopt);
  EXPECT_EQ(Reason("pos.bias", {1, 1, 8, 9}), std::nullopt);
  EXPECT_EQ(Reason("conv.weight", {1, 1, 3, 3}), std::nullopt);
}

// llama 1 and 2, chatglm, gemma 3.
TEST(NonParametersTest, KnowsRotaryTables) {
  ExpectAll("rotary table",
            {"model.layers.0.self_attn.rotary_emb.inv_freq",
             "transformer.rotary_pos_emb.inv_freq",
             "model.rotary_emb.original_inv_freq", "rotary_emb.cos_cached",
             "model.layers.0.self_attn.rotary_emb.sin_cached"});
  ExpectAll(std::nullopt, {"model.inv_freq_proj.weight", "cos_cached"});
}

TEST(NonParametersTest, KnowsRouterStatistics) {
  ExpectAll("router statistic, not trained",
            {"model.layers.3.mlp.gate.e_score_correction_bias",
             "model.layers.1.mlp.moe_statics.e_score_correction_bias",
             "model.layers.2.feed_forward.expert_bias"});
  ExpectAll(std::nullopt, {"model.layers.3.mlp.gate.weight",
                           "mlp.experts.gate_up_proj_bias", "router.bias"});
}

// BERT, CLIP in half precision, Swin, fairseq; ResNet.
TEST(NonParametersTest, KnowsPositionsAndStatistics) {
  ExpectAll("position table", {"bert.embeddings.position_ids",
                               "roberta.embeddings.token_type_ids",
                               "text_model.embeddings.position_ids",
                               "layers.0.blocks.0.attn.relative_position_index",
                               "layers.0.blocks.0.attn.relative_coords_table",
                               "decoder.embed_positions._float_tensor"});
  EXPECT_EQ(Reason("bert.embeddings.position_ids", {1, 512}, DType::kI64),
            "position table");
  ExpectAll("running statistic of batches",
            {"bn1.running_mean", "layer1.0.bn1.running_var"});
  EXPECT_EQ(Reason("bn1.num_batches_tracked", {}, DType::kI64),
            "running statistic of batches");
  ExpectAll(std::nullopt,
            {"bert.embeddings.position_embeddings.weight",
             "bert.embeddings.token_type_embeddings.weight", "bn1.weight",
             "bn1.bias", "layers.0.attn.relative_position_bias_table"});
}

// GPTQ and AWQ, compressed-tensors, DeepSeek FP8, ModelOpt, bitsandbytes.
TEST(NonParametersTest, KnowsQuantisationDataByWholeWords) {
  ExpectAll("quantisation data",
            {"l.0.q_proj.weight_scale",
             "l.0.q_proj.weight_scale_inv",
             "l.0.q_proj.weight_scale_2",
             "l.0.q_proj.weight_scales",
             "l.0.q_proj.input_scale",
             "l.0.self_attn.k_scale",
             "l.0.self_attn.kv_scale",
             "l.0.q_proj.scales",
             "l.0.q_proj.qzeros",
             "l.0.weight_zeros",
             "l.0.q_proj.weight_zero_point",
             "l.0.q_proj.g_idx",
             "l.0.q_proj.weight_g_idx",
             "l.0.q_proj.weight_global_scale",
             "l.0.q_proj.SCB",
             "l.0.q_proj.weight.absmax",
             "l.0.q_proj.weight.nested_absmax",
             "l.0.q_proj.weight.quant_map",
             "l.0.q_proj.weight.nested_quant_map",
             "l.0.q_proj.weight.quant_state.bitsandbytes__nf4"});
  ExpectAll("quantisation data",
            {"model.layers.0.mlp.experts.gate_up_proj_scales"}, {32, 90, 16},
            DType::kU8);
  ExpectAll(std::nullopt,
            {"logit_scale", "blocks.0.layer_scale", "layer_scale_1.weight",
             "norm.scale", "scales.weight", "zero_conv.weight"});
}

// GPTQ and AWQ, compressed-tensors, exl2, bitsandbytes, gpt-oss.
TEST(NonParametersTest, TellsPackedWeightsFromOtherIntegers) {
  ExpectAll(
      "packed weights",
      {"l.0.q_proj.qweight", "l.0.q_proj.weight_packed", "l.0.q_proj.q_weight"},
      {16}, DType::kI32);
  ExpectAll(
      "packed weights",
      {"l.0.q_proj.weight", "model.layers.0.mlp.experts.gate_up_proj_blocks"},
      {16}, DType::kU8);
  ExpectAll("integers, which no optimizer trains",
            {"l.0.q_proj.weight_shape", "step", "l.0.q_proj.q_groups"}, {16},
            DType::kI64);
  EXPECT_EQ(Reason("mask", {16}, DType::kBool),
            "integers, which no optimizer trains");
  EXPECT_EQ(Reason("w", {16}, DType::kF8E4M3), std::nullopt);
  EXPECT_EQ(Reason("l.0.q_proj.weight", {16}, DType::kF8E4M3), std::nullopt);
}

}  // namespace
}  // namespace castor
