// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/derive/activation_model.h"

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/derive/step_model.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;

// sbh (34 + 5 a s / h), equation 1 of the paper.
TEST(ActivationModelTest, IsThePapersFormulaInHalfPrecision) {
  for (const int64_t b : {1, 3}) {
    for (const int64_t s : {8, 2048}) {
      for (const int64_t h : {64, 12288}) {
        const int64_t a = 16;
        const TransformerShape shape = {
            .batch = b, .seq = s, .width = h, .heads = a, .vocab = 1000};
        ASSERT_THAT(ValidateShape(shape), IsOk());
        const BlockActivations layer = ActivationsOf(shape, BlockKind::kLayer);
        EXPECT_EQ(layer.kept.count(), s * b * (34 * h + 5 * a * s));
        EXPECT_EQ(layer.kept_input.count(), 2 * s * b * h);
        // Behind the layers: 4 sbh, logits and their log-softmax, of which a
        // loss as PyTorch computes one has gradients too; before them a mask.
        const BlockActivations head = ActivationsOf(shape, BlockKind::kHead);
        EXPECT_EQ(head.kept.count(), s * b * (4 * h + 6 * 1000));
        EXPECT_EQ(head.working.count(), s * b * 8 * 1000);
        EXPECT_EQ(ActivationsOf(shape, BlockKind::kEmbedding).kept.count(),
                  s * b * h);
      }
    }
  }
  // The paper's table for a 22B model: 6144 wide, 64 heads, 2048 tokens, 48
  // layers, batch 4: 5as/h is 107 beside 34.
  const TransformerShape model22b = {
      .batch = 4, .seq = 2048, .width = 6144, .heads = 64, .vocab = 51200};
  EXPECT_EQ(ActivationsOf(model22b, BlockKind::kLayer).kept.count() * 3,
            int64_t{4} * 2048 * 6144 * (34 * 3 + 320));
}

TEST(ActivationModelTest, LeavesOutWhatIsNotKept) {
  // bf16 Llama: grouped queries, gated MLP, no dropout, fused attention.
  const TransformerShape shape = {.batch = 2,
                                  .seq = 100,
                                  .width = 4096,
                                  .heads = 32,
                                  .vocab = 128256,
                                  .key_width = 1024,
                                  .mlp_width = 14336,
                                  .gated_mlp = true,
                                  .dropout = false,
                                  .keeps_scores = false};
  EXPECT_EQ(
      ActivationsOf(shape, BlockKind::kLayer).kept.count(),
      200 * (2 * (2 * 4096 + 3 * 4096 + 2 * 1024 + 4096 + 4 * 14336) + 4 * 32));
  EXPECT_EQ(ActivationsOf(shape, BlockKind::kEmbedding).kept, Bytes(0));
  // fp32 without dropout: no masks, and softmax's result once.
  const TransformerShape fp32 = {.batch = 1,
                                 .seq = 16,
                                 .width = 64,
                                 .heads = 4,
                                 .dropout = false,
                                 .element_bytes = 4};
  EXPECT_EQ(ActivationsOf(fp32, BlockKind::kLayer).kept.count(),
            16 * (4 * 16 * 64 + 4 * 4 * 16));
}

// Bytes a token that autograd keeps of a layer: models of 64 in width with 4
// heads of 16, an inner width of 192 and 64 tokens, transformers 5.24 on a CPU.
struct Measured {
  const char* model;
  TransformerShape shape;
  bool has_experts;
  double bytes;
};

TransformerShape Small(int64_t element_bytes) {
  TransformerShape shape = {.batch = 2, .seq = 64, .width = 64, .heads = 4};
  shape.vocab = 320;
  shape.key_width = 32;
  shape.mlp_width = 192;
  shape.gated_mlp = true;
  shape.norm = NormKind::kRms;
  shape.dropout = false;
  shape.keeps_scores = false;
  shape.element_bytes = element_bytes;
  return shape;
}

TEST(ActivationModelTest, IsWithinTwoPercentOfWhatAutogradKeeps) {
  std::vector<Measured> all = {{"llama", Small(2), false, 2968},
                               {"llama in fp32", Small(4), false, 5400},
                               {"mixtral", Small(2), true, 5132.25},
                               {"mixtral in fp32", Small(4), true, 9612.25},
                               {"qwen3", Small(2), false, 3568},
                               {"qwen3_moe", Small(2), true, 4180.25},
                               {"qwen2_moe", Small(2), true, 4734.25},
                               {"deepseek_v3", Small(2), true, 5396.25},
                               {"gpt_neox", Small(2), false, 1816}};
  for (Measured& of : all) {
    TransformerShape& shape = of.shape;
    const std::string name = of.model;
    if (of.has_experts) {
      shape.experts = {.count = 8, .used = 2, .width = 96};
      if (name.starts_with("mixtral")) shape.experts.width = 192;
    }
    shape.head_norms = name == "qwen3" || name == "qwen3_moe";
    if (name == "qwen2_moe") {
      shape.experts.shared_width = 128;
      shape.experts.shared_gate = true;
    }
    if (name == "deepseek_v3") {
      shape.experts.shared_width = 96;
      shape.experts.fp32_router = true;
      shape.latent_width = 32 + 16;
      shape.key_width = shape.value_width = 64;
    }
    if (name == "gpt_neox") {
      shape.norm = NormKind::kLayer;
      shape.gated_mlp = false;
      shape.key_width = 0;
    }
    const BlockActivations layer =
        ActivationsOf(shape, BlockKind::kLayer, of.has_experts);
    EXPECT_NEAR(static_cast<double>(layer.kept.count()) / 128, of.bytes,
                0.021 * of.bytes)
        << name;
  }
}

// Of a head with 32,000 words and 2,048 tokens, in bytes a token and word: 6.2
// kept and 14.2 at most in bf16, 8.2 and 16.2 in fp32, as a process grows.
TEST(ActivationModelTest, AHeadKeepsWhatAProcessGrowsBy) {
  for (const auto& [bytes, kept, most] :
       {std::tuple(2, 6.17, 14.17), std::tuple(4, 8.23, 16.23)}) {
    TransformerShape shape = Small(bytes);
    shape.batch = 1;
    shape.seq = 2048;
    shape.vocab = 32000;
    const BlockActivations head = ActivationsOf(shape, BlockKind::kHead);
    const double words = 2048.0 * 32000;
    EXPECT_NEAR(static_cast<double>(head.kept.count()) / words, kept,
                0.05 * kept);
    EXPECT_NEAR(static_cast<double>((head.kept + head.working).count()) / words,
                most, 0.05 * most);
  }
}

// Logits of 256 tokens, or of as many as a head's input has room for.
TEST(ActivationModelTest, ALossInChunksKeepsNoLogits) {
  TransformerShape shape = Small(2);
  shape.batch = 4;
  shape.seq = 4096;
  shape.width = 4096;
  shape.vocab = 128256;
  constexpr int64_t kTokens = 4 * 4096;
  const Bytes plain = ActivationsOf(shape, BlockKind::kHead).kept;
  shape.loss = LossKind::kChunked;
  const BlockActivations chunked = ActivationsOf(shape, BlockKind::kHead);
  EXPECT_EQ(plain - chunked.kept, Bytes(kTokens * 128256 * 6));
  EXPECT_EQ(chunked.working,
            Bytes(kTokens * 4096 * 2 + int64_t{256} * 128256 * 14));
  shape.loss = LossKind::kFused;
  const BlockActivations fused = ActivationsOf(shape, BlockKind::kHead);
  EXPECT_EQ(fused.kept - chunked.kept, Bytes(int64_t{2} * 4096 * 128256));
  // 128,256 / 4,096 is 31.3, so 512 tokens, a power of two.
  EXPECT_EQ(fused.working, Bytes(int64_t{512} * 128256 * 6));
}

TEST(ActivationModelTest, RefusesWhatHasNoMeaning) {
  TransformerShape shape = {.seq = 16, .width = 64, .heads = 4};
  std::vector<ModelBlock> blocks(2);
  blocks[0].kind = BlockKind::kLayer;
  ASSERT_THAT(SetActivations(shape, blocks), IsOk());
  EXPECT_EQ(blocks[0].activations.kept_input, Bytes(2 * 16 * 64));
  EXPECT_EQ(blocks[1].activations.kept, Bytes(2 * 16 * 64));
  shape.heads = 0;
  EXPECT_THAT(SetActivations(shape, blocks),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("a number of heads of 0")));
  shape = {.batch = 1 << 30, .seq = 1 << 30, .width = 1 << 30, .heads = 1};
  EXPECT_THAT(ValidateShape(shape), StatusIs(ErrorCode::kInvalidArgument,
                                             HasSubstr("smaller batch")));
}

}  // namespace
}  // namespace castor
