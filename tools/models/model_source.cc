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

#include "chunk/text/did_you_mean.h"
#include "chunk/text/quote.h"
#include "tools/models/families/expert_layout.h"
#include "tools/models/families/transformers_model.h"
#include "tools/models/files/hub_cache.h"
#include "tools/models/files/input_file.h"
#include "tools/models/files/model_folder.h"
#include "tools/models/files/param_list.h"
#include "tools/models/files/weight_file.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

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

Result<FamilyModel> BuildKnown(const ConfigValues& config,
                               const ReadModelOptions& options) {
  return BuildFamilyModel(config,
                          options.expert_layout.value_or(ExpertLayout::kFused));
}

// Why nothing is known of the parameters. `asked` is the library's answer, OK
// where nobody was to be asked.
Status UnknownFamily(std::string_view model_type, const Status& asked) {
  const std::string unknown = fmt::format(
      "the config's model_type {} is not a family that Castor derives "
      "parameters for",
      Quoted(model_type));
  constexpr std::string_view kGive =
      "give the model's .safetensors or a list instead";
  switch (asked.code()) {
    case ErrorCode::kOk:
      return InvalidArgument(
          fmt::format("{}; {}; {}", unknown, kGive, WhatIsKnown(model_type)));
    case ErrorCode::kUnavailable:
      return InvalidArgument(fmt::format("{}, and {}, or {}; {}", unknown,
                                         asked.message(), kGive,
                                         WhatIsKnown(model_type)));
    default:
      return Status(asked.code(), fmt::format("{}, and {}; {}", unknown,
                                              asked.message(), kGive));
  }
}

// The family's model: Castor's own list, else that of the Transformers library,
// else of the part that Castor knows.
Result<FamilyModel> BuildModel(std::string_view json,
                               const ReadModelOptions& options) {
  CASTOR_ASSIGN_OR_RETURN(const ConfigValues config, ConfigValues::Parse(json));
  CASTOR_ASSIGN_OR_RETURN(const std::string part, config.model_type());
  CASTOR_ASSIGN_OR_RETURN(std::string whole, config.Whole().model_type());
  if (whole.empty()) whole = part;
  if (whole.empty()) {
    return Malformed(
        "the config has no model_type, which says what family the model is of");
  }
  if (part.empty() && IsKnownFamily(whole)) {
    return Malformed(
        "its text_config has no model_type, which says what family the "
        "language part is of");
  }
  const bool knows_part = IsKnownFamily(part);
  if (knows_part && (whole == part || IsKnownFamily(whole))) {
    return BuildKnown(config, options);
  }
  Status asked;
  if (!options.python.empty()) {
    Result<FamilyModel> model = AskTransformers(json, config, options.python);
    if (model.ok()) return model;
    asked = model.status();
  }
  if (!knows_part) return UnknownFamily(whole, asked);
  CASTOR_ASSIGN_OR_RETURN(FamilyModel model, BuildKnown(config, options));
  if (!asked.ok()) {
    model.notes.push_back(
        fmt::format("of the whole model, {}, nothing is "
                    "known: {}",
                    whole, asked.message()));
  }
  return model;
}

Result<ModelSource> ReadConfig(std::string_view json,
                               const ReadModelOptions& options) {
  ModelSource source;
  source.kind = SourceKind::kConfig;
  CASTOR_ASSIGN_OR_RETURN(FamilyModel family, BuildModel(json, options));
  source.list.params = std::move(family.params);
  source.list.notes = std::move(family.notes);
  family.params.clear();
  source.list.family = family.family;
  source.list.library = family.library;
  source.family = std::move(family);
  return source;
}

// What was read, and who told the parameters where Castor did not.
std::string SourceOf(const ModelSource& source, std::string file) {
  return source.list.library.empty()
             ? file
             : fmt::format("{}, by {}", file, source.list.library);
}

Result<ModelSource> ReadConfigFile(const std::string& path,
                                   const ReadModelOptions& options) {
  CASTOR_ASSIGN_OR_RETURN(
      ModelSource source,
      ParseFile(path, kMaxConfigBytes, [&](const std::string& json) {
        return ReadConfig(json, options);
      }));
  source.list.source = SourceOf(source, FileName(path));
  return source;
}

// The family's list with experts as `source` holds them, where it can be.
Result<FamilyModel> BuildModelBeside(std::string_view json,
                                     const ReadModelOptions& options,
                                     const ModelSource& source) {
  ReadModelOptions as_held = options;
  if (!options.expert_layout) {
    as_held.expert_layout = FindExpertLayout(source.list.params);
  }
  CASTOR_ASSIGN_OR_RETURN(FamilyModel family, BuildModel(json, as_held));
  if (!family.library.empty() &&
      as_held.expert_layout == ExpertLayout::kPerExpert) {
    std::vector<ParamSpec> split = family.params;
    const Status status = ApplyExpertLayout(ExpertLayout::kPerExpert, split);
    if (status.ok()) family.params = std::move(split);
  }
  return family;
}

// What the config.json beside weight files adds: the family's order. One that
// is of no known family, or of none at all, is said and left.
Status AddConfig(const std::string& path, const ReadModelOptions& options,
                 ModelSource* source) {
  if (path.empty()) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  CASTOR_ASSIGN_OR_RETURN(const std::string json,
                          file.ReadAll(kMaxConfigBytes));
  auto add = [&]() -> Status {
    CASTOR_ASSIGN_OR_RETURN(const ConfigValues config,
                            ConfigValues::Parse(json));
    CASTOR_ASSIGN_OR_RETURN(const std::string part, config.model_type());
    CASTOR_ASSIGN_OR_RETURN(const std::string whole,
                            config.Whole().model_type());
    const std::string& model_type = whole.empty() ? part : whole;
    const auto leave = [&](std::string_view why) {
      source->list.notes.push_back(fmt::format(
          "the config.json beside it names {}, so there is no family order{}",
          model_type.empty() ? "no model_type"
                             : "the unknown family " + Quoted(model_type),
          why));
    };
    const bool known = IsKnownFamily(part);
    if (model_type.empty() || (!known && options.python.empty())) {
      leave("");
      return OkStatus();
    }
    Result<FamilyModel> family = BuildModelBeside(json, options, *source);
    if (!family.ok() && known) return family.status();
    if (!family.ok()) {
      leave(fmt::format(": {}", family.status().message()));
      return OkStatus();
    }
    if (!family->library.empty()) {
      source->list.notes.push_back(
          fmt::format("the family's order is that in which {} registers {}",
                      family->library, family->family));
    }
    source->family = *std::move(family);
    source->list.family = source->family->family;
    source->list.library = source->family->library;
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
Result<ModelSource> ReadText(const std::string& path,
                             const ReadModelOptions& options) {
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
    Result<ModelSource> config = ReadConfig(text, options);
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
  source.list.source =
      SourceOf(source, path == "-" ? "standard input" : FileName(path));
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
                                 const ReadModelOptions& options) {
  Result<ModelSource> source = ReadConfigFile(folder.config, options);
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
                               const ReadModelOptions& options) {
  CASTOR_ASSIGN_OR_RETURN(const ModelFolder folder, LookIntoFolder(path));
  if (folder.weights.empty()) return ReadConfigOf(folder, options);
  CASTOR_ASSIGN_OR_RETURN(ModelSource source, ReadWeights(folder.weights));
  CASTOR_RETURN_IF_ERROR(AddConfig(folder.config, options, &source));
  if (!source.family || !source.family->quantized) return source;
  // Packed weights have shapes that no trainer registers.
  CASTOR_ASSIGN_OR_RETURN(ModelSource config,
                          ReadConfigFile(folder.config, options));
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

Result<ModelSource> ReadFile(const std::string& path,
                             const ReadModelOptions& options) {
  CASTOR_RETURN_IF_ERROR(RefuseFormat(path));
  if (!IsWeightFile(path)) return ReadText(path, options);
  CASTOR_ASSIGN_OR_RETURN(ModelSource source, ReadWeights(path));
  CASTOR_RETURN_IF_ERROR(AddConfig(ConfigBeside(path), options, &source));
  if (source.family && source.family->quantized) {
    source.list.notes.push_back(
        "the config.json beside it has a quantization_config, so shapes in "
        "the file are packed; give the config.json for what is trained");
  }
  return source;
}

// A model that the hub's libraries have downloaded to this machine.
Result<ModelSource> ReadFromHub(const std::string& path,
                                const ReadModelOptions& options) {
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
  CASTOR_ASSIGN_OR_RETURN(ModelSource source, ReadFolder(folder, options));
  source.list.notes.push_back(
      fmt::format("{} is no path here; read from the hub cache: {}",
                  Quoted(path), QuotedPath(folder)));
  source.list.name = ModelNameOf(folder);
  return source;
}

Result<ModelSource> Read(const std::string& path,
                         const ReadModelOptions& options) {
  if (path == "-") return ReadText(path, options);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return ReadFromHub(path, options);
  return fs::is_directory(status) ? ReadFolder(path, options)
                                  : ReadFile(path, options);
}

}  // namespace

Result<ModelSource> ReadModelSource(const std::string& path,
                                    const ReadModelOptions& options) {
  CASTOR_ASSIGN_OR_RETURN(ModelSource source, Read(path, options));
  if (source.list.name.empty()) {
    source.list.name = path == "-" ? "standard input" : ModelNameOf(path);
  }
  return source;
}

}  // namespace castor
