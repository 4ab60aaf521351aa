// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "chunk/text/quote.h"
#include "tools/models/families/config_values.h"
#include "tools/models/files/hub_cache.h"
#include "tools/models/files/input_file.h"
#include "tools/models/files/model_folder.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

struct FoundConfig {
  std::string path;     // empty: there is none
  bool beside = false;  // nobody named it: it lies beside what was named
};

// The config.json that MODEL is, has beside it or holds.
Result<FoundConfig> ConfigOf(const std::string& path) {
  if (path == "-") return FoundConfig();
  std::error_code error;
  std::string folder = path;
  if (!fs::exists(path, error)) {
    const std::optional<HubName> name = ParseHubName(path);
    if (!name) return FoundConfig();
    CASTOR_ASSIGN_OR_RETURN(folder, FindInHubCache(*name, HubCacheFolder()));
  }
  if (fs::is_directory(folder, error)) {
    CASTOR_ASSIGN_OR_RETURN(const ModelFolder found, LookIntoFolder(folder));
    return FoundConfig{found.config};
  }
  const fs::path file(path);
  if (file.extension() == ".json" &&
      !file.filename().string().ends_with(".index.json")) {
    return FoundConfig{path};
  }
  return FoundConfig{ConfigBeside(path), true};
}

// The first of the keys that says more than 0. They may be null, or an array of
// a number for each layer, which is no number of the model.
Result<int64_t> FirstOf(const ConfigValues& config,
                        std::initializer_list<const char*> keys) {
  for (const char* const key : keys) {
    if (config.IsList(key)) continue;
    CASTOR_ASSIGN_OR_RETURN(const int64_t value, config.IntOrNull(key, 0, 0));
    if (value > 0) return value;
  }
  return int64_t{0};
}

// Of multi-head latent attention, as DeepSeek has it since V2.
Status ReadLatents(const ConfigValues& config, TransformerShape* shape) {
  CASTOR_ASSIGN_OR_RETURN(const int64_t of_keys,
                          FirstOf(config, {"kv_lora_rank"}));
  if (of_keys == 0) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(const int64_t of_queries,
                          FirstOf(config, {"q_lora_rank"}));
  CASTOR_ASSIGN_OR_RETURN(const int64_t turned,
                          FirstOf(config, {"qk_rope_head_dim"}));
  CASTOR_ASSIGN_OR_RETURN(const int64_t plain,
                          FirstOf(config, {"qk_nope_head_dim"}));
  CASTOR_ASSIGN_OR_RETURN(const int64_t values,
                          FirstOf(config, {"v_head_dim"}));
  shape->latent_width = of_keys + of_queries;
  shape->query_width = shape->key_width = shape->heads * (turned + plain);
  shape->value_width = shape->heads * values;
  return OkStatus();
}

Status ReadExperts(const ConfigValues& config, TransformerShape* shape) {
  ExpertShape& experts = shape->experts;
  CASTOR_ASSIGN_OR_RETURN(
      experts.count, FirstOf(config, {"num_local_experts", "num_experts",
                                      "n_routed_experts", "moe_num_experts"}));
  CASTOR_ASSIGN_OR_RETURN(
      experts.used, FirstOf(config, {"num_experts_per_tok", "experts_per_token",
                                     "moe_topk", "moe_k"}));
  if (experts.used == 0 || experts.used > experts.count) {
    experts = ExpertShape();
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(
      experts.width,
      FirstOf(config, {"moe_intermediate_size", "expert_ffn_hidden_size"}));
  if (experts.width == 0) experts.width = shape->mlp_width;
  CASTOR_ASSIGN_OR_RETURN(experts.shared_width,
                          FirstOf(config, {"shared_expert_intermediate_size",
                                           "shared_intermediate_size"}));
  CASTOR_ASSIGN_OR_RETURN(
      const int64_t shared,
      FirstOf(config, {"n_shared_experts", "num_shared_experts"}));
  experts.shared_gate = experts.shared_width > 0;
  if (experts.shared_width == 0) experts.shared_width = shared * experts.width;
  CASTOR_ASSIGN_OR_RETURN(const int64_t groups, FirstOf(config, {"n_group"}));
  experts.fp32_router = groups > 0 || shape->latent_width > 0;
  return OkStatus();
}

Status ReadConfig(const ConfigValues& config, TransformerShape* shape) {
  CASTOR_ASSIGN_OR_RETURN(
      shape->width, FirstOf(config, {"hidden_size", "n_embd", "d_model"}));
  CASTOR_ASSIGN_OR_RETURN(
      shape->heads,
      FirstOf(config, {"num_attention_heads", "n_head", "num_heads"}));
  CASTOR_ASSIGN_OR_RETURN(shape->vocab, FirstOf(config, {"vocab_size"}));
  CASTOR_ASSIGN_OR_RETURN(
      shape->mlp_width,
      FirstOf(config, {"intermediate_size", "n_inner", "ffn_dim", "d_ff"}));
  CASTOR_ASSIGN_OR_RETURN(int64_t head_width,
                          FirstOf(config, {"head_dim", "d_kv"}));
  CASTOR_ASSIGN_OR_RETURN(const int64_t key_heads,
                          FirstOf(config, {"num_key_value_heads"}));
  if (head_width == 0 && shape->heads > 0) {
    head_width = shape->width / shape->heads;
  }
  shape->query_width = shape->heads * head_width;
  shape->key_width = (key_heads > 0 ? key_heads : shape->heads) * head_width;
  CASTOR_RETURN_IF_ERROR(ReadLatents(config, shape));
  CASTOR_RETURN_IF_ERROR(ReadExperts(config, shape));
  CASTOR_ASSIGN_OR_RETURN(const std::string type, config.model_type());
  std::string activation = type == "gpt2" ? "gelu_new" : "";
  if (!config.IsNull("activation_function")) {
    CASTOR_ASSIGN_OR_RETURN(activation,
                            config.String("activation_function", activation));
  }
  // Written as seven operations of torch, of which four keep something.
  if (activation == "gelu_new") shape->activation_copies = 4;
  // Its experts clamp gates, and scale them before the sigmoid.
  if (type == "gpt_oss") shape->gated_copies = 7;
  if (type == "gpt_oss" || type.starts_with("gemma")) {
    shape->norm = NormKind::kRmsInFp32;
  }
  return OkStatus();
}

bool Contains(std::string_view name, std::string_view part) {
  return name.find(part) != name.npos;
}

bool IsDigits(std::string_view piece) {
  return !piece.empty() && piece.find_first_not_of("0123456789") == piece.npos;
}

// "model.layers.0" of "model.layers.0.mlp.up_proj.weight"; empty: in no layer.
std::string_view LayerOf(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    if (IsDigits(name.substr(begin, end - begin))) return name.substr(0, end);
    begin = end + 1;
  }
  return {};
}

// The name of the module that a parameter is of: "q_norm" of
// "model.layers.0.self_attn.q_norm.weight".
std::string_view ModuleOf(std::string_view name) {
  name = name.substr(0, std::min(name.rfind('.'), name.size()));
  const size_t dot = name.rfind('.');
  return dot == name.npos ? name : name.substr(dot + 1);
}

// The norms of the first layer. A norm with a bias is a layer norm.
void ReadNorms(const ModelList& model, TransformerShape* shape) {
  std::string_view layer;
  int64_t norms = 0;
  bool biases = false;
  for (const ParamSpec& spec : model.params) {
    const std::string_view of = LayerOf(spec.name);
    const std::string_view module = ModuleOf(spec.name);
    if (of.empty() ||
        !(Contains(module, "norm") || module.starts_with("ln_"))) {
      continue;
    }
    if (layer.empty()) layer = of;
    if (of != layer) continue;
    if (Contains(module, "q_norm") || Contains(module, "query_norm")) {
      shape->head_norms = true;
    }
    const bool of_width =
        spec.shape.size() == 1 && spec.shape[0] == shape->width;
    if (!of_width || Contains(module, "q_norm") || Contains(module, "k_norm")) {
      continue;
    }
    if (spec.name.ends_with(".bias")) {
      biases = true;
    } else {
      ++norms;
    }
  }
  if (norms == 0) return;
  shape->norms = norms;
  if (biases) {
    shape->norm = NormKind::kLayer;
  } else if (shape->norm == NormKind::kLayer) {
    shape->norm = NormKind::kRms;
  }
}

// A table of tokens is the first matrix with such a name.
void ReadParams(const ModelList& model, TransformerShape* shape) {
  for (const ParamSpec& spec : model.params) {
    const std::string_view name = spec.name;
    if (Contains(name, "gate_proj") || Contains(name, "gate_up_proj") ||
        Contains(name, ".wi_1.") || Contains(name, ".w3.")) {
      shape->gated_mlp = true;
    }
    if (!LayerOf(name).empty() &&
        (Contains(name, "A_log") || Contains(name, "linear_attn") ||
         Contains(name, "conv1d"))) {
      shape->other_mixers = true;
    }
    if (shape->width == 0 && spec.shape.size() == 2 &&
        (Contains(name, "embed_tokens") || Contains(name, "wte.") ||
         Contains(name, "word_embeddings"))) {
      shape->vocab = spec.shape[0];
      shape->width = spec.shape[1];
    }
  }
  ReadNorms(model, shape);
}

}  // namespace

Result<TransformerShape> ReadModelShape(const std::string& path,
                                        const ModelList& model) {
  TransformerShape shape;
  CASTOR_ASSIGN_OR_RETURN(const FoundConfig config, ConfigOf(path));
  if (!config.path.empty()) {
    CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(config.path));
    CASTOR_ASSIGN_OR_RETURN(const std::string json,
                            file.ReadAll(kMaxConfigBytes));
    // A list of parameters is JSON too, and says nothing here.
    const bool is_list = json.find_first_not_of(" \t\r\n") != json.npos &&
                         json[json.find_first_not_of(" \t\r\n")] == '[';
    if (!is_list) {
      const auto read = [&]() -> Status {
        CASTOR_ASSIGN_OR_RETURN(const ConfigValues values,
                                ConfigValues::Parse(json));
        return ReadConfig(values, &shape);
      };
      if (Status status = read(); !status.ok()) {
        return status.WithContext(
            config.beside
                ? fmt::format("{}, read for the widths of layers because it "
                              "lies beside {}; mend it, or move one of them",
                              QuotedPath(config.path), QuotedPath(path))
                : QuotedPath(config.path));
      }
    }
  }
  ReadParams(model, &shape);
  return shape;
}

}  // namespace castor
