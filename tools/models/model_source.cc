// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/model_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "chunk/base/did_you_mean.h"
#include "chunk/base/quote.h"
#include "tools/models/expert_layout.h"
#include "tools/models/hub_cache.h"
#include "tools/models/input_file.h"
#include "tools/models/model_folder.h"
#include "tools/models/param_list.h"
#include "tools/models/weight_file.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

using Experts = std::optional<ExpertLayout>;

constexpr std::string_view kAccepted =
    "a folder, .safetensors, *.index.json, config.json, a TSV or JSON list, - "
    "for a list on the standard input, or ORG/NAME of a model in the hub cache";

std::string FileName(const std::string& path) {
  return fs::path(path).filename().string();
}

// Every family, and the one that was probably meant.
std::string WhatIsKnown(std::string_view model_type) {
  const auto nearest = NearestName(model_type, KnownFamilies());
  return fmt::format(
      "known are {}{}", fmt::join(KnownFamilies(), ", "),
      nearest ? fmt::format("; did you mean {}?", *nearest) : "");
}

Result<ModelSource> ReadConfig(std::string_view json, const Experts& experts) {
  CASTOR_ASSIGN_OR_RETURN(const ConfigValues config, ConfigValues::Parse(json));
  CASTOR_ASSIGN_OR_RETURN(const std::string model_type, config.model_type());
  if (model_type.empty()) {
    return Malformed(
        "the config has no model_type, which says what family the model is of");
  }
  if (!IsKnownFamily(model_type)) {
    return InvalidArgument(fmt::format(
        "the config's model_type {} is not a family that Castor derives "
        "parameters for; give the model's .safetensors or a list instead; {}",
        Quoted(model_type), WhatIsKnown(model_type)));
  }
  ModelSource source;
  source.kind = SourceKind::kConfig;
  CASTOR_ASSIGN_OR_RETURN(
      FamilyModel family,
      BuildFamilyModel(config, experts.value_or(ExpertLayout::kFused)));
  source.list.params = std::move(family.params);
  source.list.notes = std::move(family.notes);
  family.params.clear();
  source.list.family = family.family;
  source.family = std::move(family);
  return source;
}

Result<ModelSource> ReadConfigFile(const std::string& path,
                                   const Experts& experts) {
  CASTOR_ASSIGN_OR_RETURN(
      ModelSource source,
      ParseFile(path, kMaxConfigBytes, [&](const std::string& json) {
        return ReadConfig(json, experts);
      }));
  source.list.source = FileName(path);
  return source;
}

// What the config.json beside weight files adds: the family's order. One that
// is of no known family, or of none at all, is said and left.
Status AddConfig(const std::string& path, const Experts& experts,
                 ModelSource* source) {
  if (path.empty()) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  CASTOR_ASSIGN_OR_RETURN(const std::string json,
                          file.ReadAll(kMaxConfigBytes));
  auto add = [&]() -> Status {
    CASTOR_ASSIGN_OR_RETURN(const ConfigValues config,
                            ConfigValues::Parse(json));
    CASTOR_ASSIGN_OR_RETURN(const std::string model_type, config.model_type());
    if (!IsKnownFamily(model_type)) {
      source->list.notes.push_back(fmt::format(
          "the config.json beside it names {}, so there is no family order",
          model_type.empty() ? "no model_type"
                             : "the unknown family " + Quoted(model_type)));
      return OkStatus();
    }
    const Experts layout =
        experts ? experts : FindExpertLayout(source->list.params);
    CASTOR_ASSIGN_OR_RETURN(
        source->family,
        BuildFamilyModel(config, layout.value_or(ExpertLayout::kFused)));
    source->list.family = model_type;
    return OkStatus();
  };
  return add().WithContext(QuotedPath(path));
}

// Files of formats that are known and not read.
Status NeverOpened(const std::string& path, std::string_view format) {
  return InvalidArgument(fmt::format(
      "{}: {} files are never opened; give the model's config.json or "
      ".safetensors",
      QuotedPath(path), format));
}

// A list in either form, or a config, told apart by the first character.
Result<ModelSource> ReadText(const std::string& path, const Experts& experts) {
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  constexpr std::string_view kGguf = "GGUF";
  if (file.is_regular() && file.size() >= kGguf.size()) {
    CASTOR_ASSIGN_OR_RETURN(const std::string begins,
                            file.ReadAt(0, kGguf.size()));
    if (begins == kGguf) return NeverOpened(file.path(), kGguf);
  }
  CASTOR_ASSIGN_OR_RETURN(const std::string text, file.ReadAll(kMaxListBytes));
  const size_t first = text.find_first_not_of(" \t\r\n");
  const char begins = first == text.npos ? '\0' : text[first];
  // Of a list in lines, no text is a list of nothing.
  if (begins == '\0' && path.ends_with(".json")) {
    return Malformed(
        fmt::format("{} is empty: give a config or a list of parameters",
                    QuotedPath(file.path())));
  }
  ModelSource source;
  if (begins == '{') {
    Result<ModelSource> config = ReadConfig(text, experts);
    if (!config.ok())
      return config.status().WithContext(QuotedPath(file.path()));
    source = *std::move(config);
  } else {
    const auto parse = [&]() -> Status {
      if (begins == '[') {
        CASTOR_ASSIGN_OR_RETURN(source.list.params, ParseJsonList(text));
        return OkStatus();
      }
      CASTOR_ASSIGN_OR_RETURN(ParamList list, ParseTsvList(text));
      source.list.params = std::move(list.params);
      source.list.step = std::move(list.step);
      return OkStatus();
    };
    CASTOR_RETURN_IF_ERROR(parse().WithContext(QuotedPath(file.path())));
  }
  source.list.source = path == "-" ? "standard input" : FileName(path);
  return source;
}

Result<ModelSource> ReadWeights(const std::string& path) {
  ModelSource source;
  source.kind = SourceKind::kWeights;
  CASTOR_ASSIGN_OR_RETURN(source.list, ReadWeightFile(path));
  return source;
}

// The config stands for weights that lie beside it and are not read.
Result<ModelSource> ReadConfigOf(const ModelFolder& folder,
                                 const Experts& experts) {
  Result<ModelSource> source = ReadConfigFile(folder.config, experts);
  if (folder.unread.empty()) return source;
  const std::string what =
      fmt::format("{}{} {} not read", Quoted(folder.unread.front()),
                  folder.unread.size() == 1
                      ? ""
                      : fmt::format(" and {} more", folder.unread.size() - 1),
                  folder.unread.size() == 1 ? "is" : "are");
  if (!source.ok()) return source.status().WithContext(what);
  source->list.notes.push_back(
      what + "; the parameters are those that config.json describes");
  return source;
}

Result<ModelSource> ReadFolder(const std::string& path,
                               const Experts& experts) {
  CASTOR_ASSIGN_OR_RETURN(const ModelFolder folder, LookIntoFolder(path));
  if (folder.weights.empty()) return ReadConfigOf(folder, experts);
  CASTOR_ASSIGN_OR_RETURN(ModelSource source, ReadWeights(folder.weights));
  CASTOR_RETURN_IF_ERROR(AddConfig(folder.config, experts, &source));
  if (!source.family || !source.family->quantized) return source;
  // Packed weights have shapes that no trainer registers.
  CASTOR_ASSIGN_OR_RETURN(ModelSource config,
                          ReadConfigFile(folder.config, experts));
  config.list.notes.push_back(
      fmt::format("the config has a quantization_config, so the shapes in {} "
                  "are packed; the parameters are those of config.json",
                  FileName(folder.weights)));
  return config;
}

Status RefuseFormat(const std::string& path) {
  for (std::string_view end :
       {".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".npz",
        ".bin.index.json", ".gguf"}) {
    if (path.ends_with(end)) return NeverOpened(path, end);
  }
  return OkStatus();
}

Result<ModelSource> ReadFile(const std::string& path, const Experts& experts) {
  CASTOR_RETURN_IF_ERROR(RefuseFormat(path));
  if (!IsWeightFile(path)) return ReadText(path, experts);
  CASTOR_ASSIGN_OR_RETURN(ModelSource source, ReadWeights(path));
  CASTOR_RETURN_IF_ERROR(AddConfig(ConfigBeside(path), experts, &source));
  if (source.family && source.family->quantized) {
    source.list.notes.push_back(
        "the config.json beside it has a quantization_config, so shapes in "
        "the file are packed; give the config.json for what is trained");
  }
  return source;
}

// A model that the hub's libraries have downloaded to this machine.
Result<ModelSource> ReadFromHub(const std::string& path,
                                const Experts& experts) {
  const std::optional<HubName> name = ParseHubName(path);
  const std::string cache = HubCacheFolder();
  std::error_code error;
  // A word alone is a mistyped path more often than a model without an owner.
  const bool is_word =
      name && name->org.empty() &&
      !fs::is_directory(fs::path(cache) / ("models--" + name->name), error);
  if (!name || is_word || cache.empty()) {
    return InvalidArgument(
        fmt::format("{}: no such file or folder; MODEL is {}", QuotedPath(path),
                    kAccepted));
  }
  CASTOR_ASSIGN_OR_RETURN(const std::string folder,
                          FindInHubCache(*name, cache));
  CASTOR_ASSIGN_OR_RETURN(ModelSource source, ReadFolder(folder, experts));
  source.list.notes.push_back(
      fmt::format("{} is no path here; read from the hub cache: {}",
                  Quoted(path), QuotedPath(folder)));
  source.list.name = ModelNameOf(folder);
  return source;
}

Result<ModelSource> Read(const std::string& path, const Experts& experts) {
  if (path == "-") return ReadText(path, experts);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return ReadFromHub(path, experts);
  return fs::is_directory(status) ? ReadFolder(path, experts)
                                  : ReadFile(path, experts);
}

}  // namespace

Result<ModelSource> ReadModelSource(
    const std::string& path, const std::optional<ExpertLayout>& experts) {
  CASTOR_ASSIGN_OR_RETURN(ModelSource source, Read(path, experts));
  if (source.list.name.empty()) {
    source.list.name = path == "-" ? "standard input" : ModelNameOf(path);
  }
  return source;
}

}  // namespace castor
