// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/integration/step_blocks.h"

#include <fmt/format.h>

#include <utility>

namespace castor::gpt {
namespace {

using enum BlockParam;

using Uses = std::vector<ParamUse>;

// A norm's input gradient needs its weight while the parameters' are made.
void NormBackward(ParamId weight, ParamId bias, Uses& uses) {
  uses.push_back({{weight}, {weight, bias}});
}

// A product's parameters first, then its input, for which the weight is held.
void LinearBackward(ParamId weight, ParamId bias, Uses& uses) {
  uses.push_back({{}, {weight, bias}});
  uses.push_back({{weight}, {}});
}

ModelBlock Layer(const GptParams& params, int layer) {
  ModelBlock block;
  block.name = fmt::format("h.{}", layer);
  block.kind = BlockKind::kLayer;
  const auto id = [&](BlockParam p) { return params.block(layer, p); };
  for (const auto& [weight, bias] :
       {std::pair(kLn1Weight, kLn1Bias), std::pair(kQkvWeight, kQkvBias),
        std::pair(kAttentionOutWeight, kAttentionOutBias),
        std::pair(kLn2Weight, kLn2Bias), std::pair(kMlpInWeight, kMlpInBias),
        std::pair(kMlpOutWeight, kMlpOutBias)}) {
    block.forward.push_back({{id(weight), id(bias)}, {}});
  }
  LinearBackward(id(kMlpOutWeight), id(kMlpOutBias), block.backward);
  LinearBackward(id(kMlpInWeight), id(kMlpInBias), block.backward);
  NormBackward(id(kLn2Weight), id(kLn2Bias), block.backward);
  LinearBackward(id(kAttentionOutWeight), id(kAttentionOutBias),
                 block.backward);
  LinearBackward(id(kQkvWeight), id(kQkvBias), block.backward);
  NormBackward(id(kLn1Weight), id(kLn1Bias), block.backward);
  return block;
}

}  // namespace

std::vector<ModelBlock> StepBlocks(const GptConfig& config) {
  const GptParams params(config);
  const ParamId table = params.token_embedding();
  const ParamId positions = params.position_embedding();
  std::vector<ModelBlock> blocks;

  ModelBlock embedding;
  embedding.name = "embedding";
  embedding.kind = BlockKind::kEmbedding;
  embedding.forward = {{{table, positions}, {}}};
  embedding.backward = {{{}, {positions}}, {{}, {table}}};
  blocks.push_back(embedding);

  for (int layer = 0; layer < config.layers; ++layer) {
    blocks.push_back(Layer(params, layer));
  }

  ModelBlock head;
  head.name = "head";
  head.kind = BlockKind::kHead;
  const ParamId weight = params.final_ln_weight();
  const ParamId bias = params.final_ln_bias();
  head.forward = {{{weight, bias}, {}}, {{table}, {}}};
  head.backward = {{{table}, {}}, {{}, {table}}};
  NormBackward(weight, bias, head.backward);
  blocks.push_back(head);
  return blocks;
}

}  // namespace castor::gpt
