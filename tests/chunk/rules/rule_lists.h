// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_CHUNK_RULES_RULE_LISTS_H_
#define CASTOR_TESTS_CHUNK_RULES_RULE_LISTS_H_

// Lists for the tests of the rules: real shapes, and random ones. Pure
// functions.

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "chunk/rules/gemini_rule.h"
#include "tools/bench/support/model_shapes.h"

namespace castor {

inline std::vector<RuleParam> AsRuleParams(
    const std::vector<ParamSpec>& params) {
  return RuleParams(params).value();
}

inline std::vector<RuleParam> RuleParamsOf(
    std::initializer_list<int64_t> sizes) {
  std::vector<RuleParam> params;
  for (const int64_t size : sizes) {
    params.push_back({Elements(size)});
  }
  return params;
}

inline std::vector<ParamSpec> Gpt2Small() {
  return Gpt2Params({.layers = 12, .hidden = 768}, DType::kBF16);
}
inline std::vector<ParamSpec> Gpt2Medium() {
  return Gpt2Params({.layers = 24, .hidden = 1024}, DType::kBF16);
}
inline std::vector<ParamSpec> Gpt2Large() {
  return Gpt2Params({.layers = 36, .hidden = 1280}, DType::kBF16);
}
inline std::vector<ParamSpec> Gpt2Xl() { return Gpt2Params({}, DType::kBF16); }

inline std::vector<ParamSpec> Llama7B() {
  return LlamaParams({.layers = 32,
                      .hidden = 4096,
                      .kv_hidden = 4096,
                      .mlp = 11008,
                      .vocabulary = 32000},
                     DType::kBF16);
}
inline std::vector<ParamSpec> Llama13B() {
  return LlamaParams({.layers = 40,
                      .hidden = 5120,
                      .kv_hidden = 5120,
                      .mlp = 13824,
                      .vocabulary = 32000},
                     DType::kBF16);
}
inline std::vector<ParamSpec> Llama2With70B() {
  return LlamaParams({.layers = 80,
                      .hidden = 8192,
                      .kv_hidden = 1024,
                      .mlp = 28672,
                      .vocabulary = 32000},
                     DType::kBF16);
}
inline std::vector<ParamSpec> Llama3With8B() {
  return LlamaParams({}, DType::kBF16);
}
inline std::vector<ParamSpec> Llama3Of70B() {
  return LlamaParams(Llama3With70B(), DType::kBF16);
}

// OPT, its head tied: 16 tensors a layer and 4 more.
inline std::vector<ParamSpec> OptParams(int64_t layers, int64_t width) {
  std::vector<ParamSpec> params;
  const auto add = [&params](std::string name, std::vector<int64_t> shape) {
    params.push_back({std::move(name), std::move(shape), DType::kBF16, true});
  };
  const auto add_linear = [&add](const std::string& name, int64_t in,
                                 int64_t out) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  };
  const auto add_norm = [&add, width](const std::string& name) {
    add(name + ".weight", {width});
    add(name + ".bias", {width});
  };
  add("embed_tokens.weight", {50272, width});
  add("embed_positions.weight", {2050, width});
  add_norm("final_layer_norm");
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
      add_linear(layer + "self_attn." + name, width, width);
    }
    add_norm(layer + "self_attn_layer_norm");
    add_linear(layer + "fc1", width, 4 * width);
    add_linear(layer + "fc2", 4 * width, width);
    add_norm(layer + "final_layer_norm");
  }
  return params;
}

// Sizes up to `largest`, runs and repeats among them, some zero.
inline std::vector<int64_t> RandomRuleSizes(std::mt19937_64& random, int most,
                                            int64_t largest) {
  const auto below = [&random](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  std::vector<int64_t> sizes;
  const int64_t count = 1 + below(most);
  while (static_cast<int64_t>(sizes.size()) < count) {
    int64_t size = below(6) == 0 ? below(4) : below(largest + 1);
    if (below(3) == 0 && !sizes.empty()) {
      size =
          sizes[static_cast<size_t>(below(static_cast<int64_t>(sizes.size())))];
    }
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace castor

#endif  // CASTOR_TESTS_CHUNK_RULES_RULE_LISTS_H_
