// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/non_parameters.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "chunk/base/dtype.h"

namespace castor {
namespace {

std::optional<std::string> Reason(const std::string& name,
                                  const std::vector<int64_t>& shape = {16},
                                  DType dtype = DType::kF32) {
  return NonParameterReason(name, shape, dtype);
}

TEST(NonParametersTest, TellsMasksFromBiases) {
  EXPECT_EQ(Reason("h.0.attn.bias", {1, 1, 1024, 1024}), "attention mask");
  EXPECT_EQ(Reason("h.0.attn.masked_bias", {}), "attention mask");
  EXPECT_EQ(Reason("bias", {1, 1, 8, 8}), "attention mask");
  EXPECT_EQ(Reason("h.0.attn.c_attn.bias", {2304}), std::nullopt);
  EXPECT_EQ(Reason("pos.bias", {1, 1, 8, 9}), std::nullopt);
  EXPECT_EQ(Reason("conv.weight", {1, 1, 3, 3}), std::nullopt);
}

TEST(NonParametersTest, KnowsRotaryTablesAndRouterStatistics) {
  EXPECT_EQ(Reason("model.layers.0.self_attn.rotary_emb.inv_freq"),
            "rotary table");
  EXPECT_EQ(Reason("rotary_emb.cos_cached"), "rotary table");
  EXPECT_EQ(Reason("model.inv_freq_proj.weight"), std::nullopt);
  EXPECT_EQ(Reason("inv_freq"), std::nullopt);
  EXPECT_EQ(Reason("model.layers.3.mlp.gate.e_score_correction_bias"),
            "router statistic, not trained");
}

TEST(NonParametersTest, KnowsQuantisationDataByWholeWords) {
  for (const std::string name :
       {"l.0.q_proj.weight_scale", "l.0.q_proj.weight_scale_inv",
        "l.0.q_proj.input_scale", "l.0.k_scale", "l.0.scales", "l.0.qzeros",
        "l.0.weight_zeros", "l.0.g_idx"}) {
    EXPECT_EQ(Reason(name), "quantisation data") << name;
  }
  for (const std::string name :
       {"logit_scale", "blocks.0.layer_scale", "layer_scale_1.weight",
        "norm.scale", "scales.weight"}) {
    EXPECT_EQ(Reason(name), std::nullopt) << name;
  }
}

TEST(NonParametersTest, LeavesIntegersOut) {
  EXPECT_EQ(Reason("l.0.qweight", {16}, DType::kI32),
            "integers, which no optimizer trains");
  EXPECT_EQ(Reason("position_ids", {16}, DType::kI64),
            "integers, which no optimizer trains");
  EXPECT_EQ(Reason("mask", {16}, DType::kBool),
            "integers, which no optimizer trains");
  EXPECT_EQ(Reason("w", {16}, DType::kF8E4M3), std::nullopt);
}

}  // namespace
}  // namespace castor
