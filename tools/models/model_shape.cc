// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>
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
  return OkStatus();
}

bool Contains(std::string_view name, std::string_view part) {
  return name.find(part) != name.npos;
}

// A table of tokens is the first matrix with such a name.
void ReadParams(const ModelList& model, TransformerShape* shape) {
  for (const ParamSpec& spec : model.params) {
    const std::string_view name = spec.name;
    if (Contains(name, "gate_proj") || Contains(name, "gate_up_proj") ||
        Contains(name, ".wi_1.") || Contains(name, ".w3.")) {
      shape->gated_mlp = true;
    }
    if (shape->width == 0 && spec.shape.size() == 2 &&
        (Contains(name, "embed_tokens") || Contains(name, "wte.") ||
         Contains(name, "word_embeddings"))) {
      shape->vocab = spec.shape[0];
      shape->width = spec.shape[1];
    }
  }
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
