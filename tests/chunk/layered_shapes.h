// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_CHUNK_LAYERED_SHAPES_H_
#define CASTOR_TESTS_CHUNK_LAYERED_SHAPES_H_

// Sizes of public models' parameters in registration order, and where their
// layers repeat: in most from the first layer on, in some from a norm before it
// that is as large as the one that ends a layer. Pure functions, thread-safe.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "chunk/search/layer_certificate.h"
#include "tests/chunk/naive_packing.h"
#include "tools/bench/support/model_shapes.h"

namespace castor {

struct LayeredShape {
  std::string name;
  std::vector<Elements> sizes;
  LayerRepeat repeat;
};

inline std::vector<Elements> SizesOfParams(
    const std::vector<ParamSpec>& params) {
  std::vector<Elements> sizes;
  for (const ParamSpec& param : params) {
    sizes.push_back(CountElements(param.shape, param.dtype).value());
  }
  return sizes;
}

inline std::vector<Elements> SizesOf(const std::vector<int64_t>& first,
                                     const std::vector<int64_t>& layer,
                                     int layers,
                                     const std::vector<int64_t>& last) {
  std::vector<int64_t> counts = first;
  for (int i = 0; i < layers; ++i) {
    counts.insert(counts.end(), layer.begin(), layer.end());
  }
  counts.insert(counts.end(), last.begin(), last.end());
  return SizesOf(counts);
}

inline std::vector<Elements> LlamaSizes(const LlamaShape& shape) {
  return SizesOfParams(LlamaParams(shape, DType::kBF16));
}

// Weight and bias of the query, key and value.
inline std::vector<Elements> Qwen25With7B() {
  constexpr int64_t kH = 3584;
  constexpr int64_t kKv = 512;
  constexpr int64_t kMlp = 18944;
  return SizesOf({152064 * kH},
                 {kH * kH, kH, kKv * kH, kKv, kKv * kH, kKv, kH * kH, kMlp * kH,
                  kMlp * kH, kH * kMlp, kH, kH},
                 28, {kH, 152064 * kH});
}

// The decoder's final norm is registered before the layers, and they end with
// a norm; the head is tied.
inline std::vector<Elements> OptWith6700M() {
  constexpr int64_t kH = 4096;
  return SizesOf({50272 * kH, 2050 * kH, kH, kH},
                 {kH * kH, kH, kH * kH, kH, kH * kH, kH, kH * kH, kH, kH, kH,
                  4 * kH * kH, 4 * kH, 4 * kH * kH, kH, kH, kH},
                 32, {});
}

inline std::vector<Elements> BertLarge() {
  constexpr int64_t kH = 1024;
  return SizesOf({30522 * kH, 512 * kH, 2 * kH, kH, kH},
                 {kH * kH, kH, kH * kH, kH, kH * kH, kH, kH * kH, kH, kH, kH,
                  4 * kH * kH, 4 * kH, 4 * kH * kH, kH, kH, kH},
                 24, {kH * kH, kH});
}

inline std::vector<Elements> Mixtral8x7B(bool fused) {
  constexpr int64_t kH = 4096;
  constexpr int64_t kKv = 1024;
  constexpr int64_t kMlp = 14336;
  std::vector<int64_t> layer = {kH * kH, kKv * kH, kKv * kH, kH * kH, 8 * kH};
  if (fused) {
    layer.insert(layer.end(), {8 * 2 * kMlp * kH, 8 * kH * kMlp});
  } else {
    for (int expert = 0; expert < 8; ++expert) {
      layer.insert(layer.end(), {kMlp * kH, kH * kMlp, kMlp * kH});
    }
  }
  layer.insert(layer.end(), {kH, kH});
  return SizesOf({32000 * kH}, layer, 32, {kH, 32000 * kH});
}

inline std::vector<LayeredShape> LayeredShapes() {
  const LlamaShape llama2_7b = {.layers = 32,
                                .hidden = 4096,
                                .kv_hidden = 4096,
                                .mlp = 11008,
                                .vocabulary = 32000};
  const LlamaShape llama2_13b = {.layers = 40,
                                 .hidden = 5120,
                                 .kv_hidden = 5120,
                                 .mlp = 13824,
                                 .vocabulary = 32000};
  return {
      {"Llama-3-8B", LlamaSizes({}), {1, 9, 32}},
      {"Llama-2-7B", LlamaSizes(llama2_7b), {1, 9, 32}},
      {"Llama-2-13B", LlamaSizes(llama2_13b), {1, 9, 40}},
      {"Llama-3-70B", LlamaSizes(Llama3With70B()), {1, 9, 80}},
      {"GPT-2 XL", SizesOfParams(Gpt2Params({}, DType::kF32)), {2, 12, 48}},
      {"Qwen2.5-7B", Qwen25With7B(), {1, 12, 28}},
      {"OPT-6.7B", OptWith6700M(), {2, 16, 32}},
      {"BERT-large", BertLarge(), {3, 16, 24}},
      {"Mixtral-8x7B, fused", Mixtral8x7B(true), {1, 9, 32}},
      {"Mixtral-8x7B, per expert", Mixtral8x7B(false), {1, 31, 32}},
      // From the two norms on that end the third, dense, layer; a layer has 7
      // tensors of attention, 256 * 3 of experts, 2 of the router, 3 of the
      // shared expert and 2 norms.
      {"DeepSeek-V3",
       SizesOfParams(DeepSeekV3Params(DType::kBF16)),
       {35, 782, 58}},
  };
}

}  // namespace castor

#endif  // CASTOR_TESTS_CHUNK_LAYERED_SHAPES_H_
