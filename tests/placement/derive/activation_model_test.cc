// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/derive/activation_model.h"

#include <cstdint>
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
        // Behind the layers: 4 sbh (1 + v / h); before them a mask.
        EXPECT_EQ(ActivationsOf(shape, BlockKind::kHead).kept.count(),
                  4 * s * b * (h + 1000));
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
