// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/bench/support/model_shapes.h"

#include <fmt/format.h>

#include <random>
#include <string>
#include <utility>

namespace castor {
namespace {

class List {
 public:
  explicit List(DType dtype) : dtype_(dtype) {}

  void Add(std::string name, std::vector<int64_t> shape) {
    params_.push_back({std::move(name), std::move(shape), dtype_, true});
  }
  std::vector<ParamSpec> Take() && { return std::move(params_); }

 private:
  DType dtype_;
  std::vector<ParamSpec> params_;
};

}  // namespace

std::vector<ParamSpec> Gpt2Params(const Gpt2Shape& shape, DType dtype) {
  const int64_t h = shape.hidden;
  List list(dtype);
  list.Add("wte.weight", {shape.vocabulary, h});
  list.Add("wpe.weight", {shape.positions, h});
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = fmt::format("h.{}.", layer);
    list.Add(prefix + "ln_1.weight", {h});
    list.Add(prefix + "ln_1.bias", {h});
    list.Add(prefix + "attn.c_attn.weight", {h, 3 * h});
    list.Add(prefix + "attn.c_attn.bias", {3 * h});
    list.Add(prefix + "attn.c_proj.weight", {h, h});
    list.Add(prefix + "attn.c_proj.bias", {h});
    list.Add(prefix + "ln_2.weight", {h});
    list.Add(prefix + "ln_2.bias", {h});
    list.Add(prefix + "mlp.c_fc.weight", {h, 4 * h});
    list.Add(prefix + "mlp.c_fc.bias", {4 * h});
    list.Add(prefix + "mlp.c_proj.weight", {4 * h, h});
    list.Add(prefix + "mlp.c_proj.bias", {h});
  }
  list.Add("ln_f.weight", {h});
  list.Add("ln_f.bias", {h});
  return std::move(list).Take();
}

std::vector<ParamSpec> LlamaParams(const LlamaShape& shape, DType dtype) {
  const int64_t h = shape.hidden;
  List list(dtype);
  list.Add("model.embed_tokens.weight", {shape.vocabulary, h});
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    list.Add(prefix + "self_attn.q_proj.weight", {h, h});
    list.Add(prefix + "self_attn.k_proj.weight", {shape.kv_hidden, h});
    list.Add(prefix + "self_attn.v_proj.weight", {shape.kv_hidden, h});
    list.Add(prefix + "self_attn.o_proj.weight", {h, h});
    list.Add(prefix + "mlp.gate_proj.weight", {shape.mlp, h});
    list.Add(prefix + "mlp.up_proj.weight", {shape.mlp, h});
    list.Add(prefix + "mlp.down_proj.weight", {h, shape.mlp});
    list.Add(prefix + "input_layernorm.weight", {h});
    list.Add(prefix + "post_attention_layernorm.weight", {h});
  }
  list.Add("model.norm.weight", {h});
  list.Add("lm_head.weight", {shape.vocabulary, h});
  return std::move(list).Take();
}

LlamaShape Llama3With70B() {
  return {.layers = 80,
          .hidden = 8192,
          .kv_hidden = 1024,
          .mlp = 28672,
          .vocabulary = 128256};
}

std::vector<ParamSpec> DeepSeekV3Params(DType dtype) {
  constexpr int64_t kHidden = 7168;
  constexpr int64_t kQueryRank = 1536;
  constexpr int64_t kKeyRank = 512;
  constexpr int64_t kHeads = 128;
  constexpr int64_t kDenseMlp = 18432;
  constexpr int64_t kExpertMlp = 2048;
  constexpr int64_t kExperts = 256;
  List list(dtype);
  const auto add_mlp = [&list](const std::string& prefix, int64_t width) {
    list.Add(prefix + "gate_proj.weight", {width, kHidden});
    list.Add(prefix + "up_proj.weight", {width, kHidden});
    list.Add(prefix + "down_proj.weight", {kHidden, width});
  };
  list.Add("model.embed_tokens.weight", {129280, kHidden});
  for (int64_t layer = 0; layer < 61; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const std::string attention = prefix + "self_attn.";
    list.Add(attention + "q_a_proj.weight", {kQueryRank, kHidden});
    list.Add(attention + "q_a_layernorm.weight", {kQueryRank});
    list.Add(attention + "q_b_proj.weight", {kHeads * 192, kQueryRank});
    list.Add(attention + "kv_a_proj_with_mqa.weight", {kKeyRank + 64, kHidden});
    list.Add(attention + "kv_a_layernorm.weight", {kKeyRank});
    list.Add(attention + "kv_b_proj.weight", {kHeads * 256, kKeyRank});
    list.Add(attention + "o_proj.weight", {kHidden, kHeads * 128});
    if (layer < 3) {
      add_mlp(prefix + "mlp.", kDenseMlp);
    } else {
      for (int64_t expert = 0; expert < kExperts; ++expert) {
        add_mlp(fmt::format("{}mlp.experts.{}.", prefix, expert), kExpertMlp);
      }
      list.Add(prefix + "mlp.gate.weight", {kExperts, kHidden});
      list.Add(prefix + "mlp.gate.e_score_correction_bias", {kExperts});
      add_mlp(prefix + "mlp.shared_experts.", kExpertMlp);
    }
    list.Add(prefix + "input_layernorm.weight", {kHidden});
    list.Add(prefix + "post_attention_layernorm.weight", {kHidden});
  }
  list.Add("model.norm.weight", {kHidden});
  list.Add("lm_head.weight", {129280, kHidden});
  return std::move(list).Take();
}

std::vector<ParamSpec> RandomParams(int64_t count, int64_t largest,
                                    uint64_t seed, DType dtype) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int64_t> size(1, largest);
  List list(dtype);
  for (int64_t i = 0; i < count; ++i) {
    list.Add(fmt::format("random.{}", i), {size(random)});
  }
  return std::move(list).Take();
}

}  // namespace castor
