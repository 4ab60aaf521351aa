// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FAMILY_PARTS_H_
#define CASTOR_TOOLS_MODELS_FAMILY_PARTS_H_

// Part of the families (family_model.h), what their builders are made of: sizes
// that many of them read from a config.json, the parameters of the modules that
// reference code is made of, each module's in the order in which it registers
// them, and what the families of Llama's shape share. Sizes are checked so that
// what is built from them fits: a config may say two billion of anything.
// Pure functions, thread-safe.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "tools/models/config_values.h"
#include "tools/models/family_model.h"
#include "tools/models/model_list.h"

namespace castor {

// More than any model has, each; sums and products of sizes that are at most
// 2^31 - 1 with a number of heads stay far below 2^63.
inline constexpr int64_t kMaxLayers = 10'000;
inline constexpr int64_t kMaxHeads = 65'536;
inline constexpr int64_t kMaxExperts = 65'536;
// All tensors that are derived from a config; DeepSeek-V3 has 45,337.
inline constexpr int64_t kMaxFamilyTensors = 1'000'000;

// Malformed where `value` is more than `most`; the message names `key`.
Status RefuseMoreThan(int64_t most, std::string_view key, int64_t value);

// Malformed where `width` is not a multiple of `heads`.
Status RefuseUnevenHeads(std::string_view width_key, int64_t width,
                         std::string_view heads_key, int64_t heads);

// 0 to kMaxLayers; `key` is what messages name, `alias` another name for it.
Result<int64_t> ReadLayers(const ConfigValues& config, const std::string& key,
                           const std::string& alias, int64_t fallback);

// 1 to kMaxHeads.
Result<int64_t> ReadHeads(const ConfigValues& config, const std::string& key,
                          const std::string& alias, int64_t fallback);

// `least` to kMaxExperts, and not so many in `layers` layers that the experts'
// three matrices each are more than kMaxFamilyTensors, whichever their layout.
Result<int64_t> ReadExperts(const ConfigValues& config, const std::string& key,
                            const std::string& alias, int64_t fallback,
                            int64_t least, int64_t layers);

// Heads that share keys and values in groups.
struct AttentionSizes {
  int64_t heads = 0;
  int64_t key_value_heads = 0;
  int64_t head_dim = 0;
};

// `key_value_heads` 0 stands for as many as heads, `head_dim` 0 for width /
// heads; so do null and a missing key without another default.
Result<AttentionSizes> ReadAttention(const ConfigValues& config, int64_t width,
                                     const AttentionSizes& defaults);

// How the matrices of single experts are called, which is also their order.
enum class ExpertNames {
  kProjections,  // gate_proj, up_proj, down_proj
  kNumbers,      // w1 gates, w2 goes down, w3 up
};

// The experts of one layer: `count` gated MLPs of `width` and `inner`.
struct ExpertSizes {
  int64_t count = 0;
  int64_t width = 0;
  int64_t inner = 0;
};

class ParamWriter {
 public:
  // `params` outlives the writer, which appends to it.
  ParamWriter(DType dtype, std::vector<ParamSpec>* params);

  void Add(std::string name, std::vector<int64_t> shape);
  // weight [out,in], then bias [out] where there is one.
  void Linear(const std::string& name, int64_t in, int64_t out,
              bool bias = false);
  // GPT-2's Conv1D: weight [in,out], then bias [out].
  void Conv1d(const std::string& name, int64_t in, int64_t out);
  // weight [width].
  void RmsNorm(const std::string& name, int64_t width);
  // weight and bias [width].
  void LayerNorm(const std::string& name, int64_t width);
  // `prefix`gate_proj, up_proj [inner,width] and down_proj [width,inner].
  void GatedMlp(const std::string& prefix, int64_t width, int64_t inner,
                bool bias = false);
  // `name`.gate_up_proj [E,2M,H] and down_proj [E,H,M], or a gated MLP per
  // expert under `name`.0, `name`.1, ...
  void Experts(const std::string& name, const ExpertSizes& sizes,
               ExpertLayout layout, ExpertNames names);

 private:
  DType dtype_;
  std::vector<ParamSpec>* params_;
};

// What tells such families apart where their configs are silent.
struct DecoderDefaults {
  int64_t vocab = 32000;
  int64_t width = 4096;
  int64_t inner = 14336;
  int64_t layers = 32;
  AttentionSizes attention = {.heads = 32};
  bool tied = false;
};

struct DecoderSizes {
  int64_t vocab = 0;
  int64_t width = 0;
  int64_t inner = 0;
  int64_t layers = 0;
  AttentionSizes attention;
  bool tied = false;
};

// vocab_size, hidden_size, intermediate_size, num_hidden_layers, those of
// ReadAttention, tie_word_embeddings.
Result<DecoderSizes> ReadDecoder(const ConfigValues& config,
                                 const DecoderDefaults& defaults);

// `prefix` ends in "self_attn.".
struct AttentionBiases {
  bool inputs = false;  // of q_proj, k_proj, v_proj
  bool output = false;  // of o_proj
};
void AddAttention(const std::string& prefix, int64_t width,
                  const AttentionSizes& sizes, const AttentionBiases& biases,
                  ParamWriter& writer);

// Appends what a part of layer `layer` registers; `prefix` is "model.layers.3."
using AddToLayer = std::function<void(int64_t layer, const std::string& prefix,
                                      ParamWriter& writer)>;

struct DecoderParts {
  AddToLayer attention;
  AddToLayer mlp;
  // After both, in this order, [width] each.
  std::vector<std::string_view> norms = {"input_layernorm",
                                         "post_attention_layernorm"};
};
FamilyModel BuildDecoder(const FamilyRequest& request,
                         const DecoderSizes& sizes, const DecoderParts& parts);

// A head of no bias, [vocab,width]: last in `model`, or tied to `embedding`.
void AddHead(const std::string& name, const std::string& embedding,
             int64_t vocab, int64_t width, bool tied, ParamWriter& writer,
             FamilyModel& model);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FAMILY_PARTS_H_
