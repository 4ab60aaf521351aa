// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/weight_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <unordered_set>
#include <utility>

#include "chunk/param_spec.h"
#include "chunk/text/quote.h"
#include "tools/models/files/input_file.h"
#include "tools/models/files/non_parameters.h"
#include "tools/models/files/safetensors_index.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

std::string FileName(const std::string& path) {
  return fs::path(path).filename().string();
}

// Torch records the names it leaves out because their tensors are stored under
// another as "name: kept name". They are no further parameters.
void ListAliases(
    const std::vector<std::pair<std::string, std::string>>& metadata,
    const std::vector<SafetensorsEntry>& entries, ModelList* list) {
  std::unordered_set<std::string_view> names;
  for (const SafetensorsEntry& entry : entries) names.insert(entry.name);
  std::unordered_set<std::string_view> listed;  // by several shards
  for (const auto& [removed, kept] : metadata) {
    if (!names.contains(kept) || names.contains(removed)) continue;
    if (!listed.insert(removed).second) continue;
    list->dropped.push_back(
        {removed, fmt::format("tied to {}, counted once", Quoted(kept))});
  }
}

// Splits what files hold into parameters and the rest.
Status KeepParameters(std::vector<ParamSpec> tensors, ModelList* list) {
  std::unordered_set<std::string> names;
  size_t packed = 0;
  for (ParamSpec& tensor : tensors) {
    // Across files; inside one header the reader has checked.
    if (!names.insert(tensor.name).second) {
      return Malformed(
          fmt::format("tensor {} is in two files", Quoted(tensor.name)));
    }
    if (std::optional<std::string> reason =
            NonParameterReason(tensor.name, tensor.shape, tensor.dtype)) {
      packed += *reason == kPackedWeights ? 1 : 0;
      list->dropped.push_back({std::move(tensor.name), *std::move(reason)});
      continue;
    }
    list->params.push_back(std::move(tensor));
  }
  if (packed > 0) {
    list->notes.push_back(fmt::format(
        "{} of {} tensors hold packed weights, in shapes that no trainer "
        "registers; for the parameters behind them give the model's "
        "config.json",
        packed, tensors.size()));
  }
  return OkStatus();
}

std::vector<ParamSpec> Specs(std::vector<SafetensorsEntry> entries) {
  std::vector<ParamSpec> specs;
  specs.reserve(entries.size());
  for (SafetensorsEntry& entry : entries) {
    specs.push_back(
        {std::move(entry.name), std::move(entry.shape), entry.dtype});
  }
  return specs;
}

Result<ModelList> ReadSafetensors(const std::string& path) {
  CASTOR_ASSIGN_OR_RETURN(const InputFile file, InputFile::OpenRegular(path));
  CASTOR_ASSIGN_OR_RETURN(SafetensorsHeader header,
                          ReadSafetensorsHeader(file));
  ModelList read;
  read.source = FileName(path) + " (header)";
  ListAliases(header.metadata, header.entries, &read);
  CASTOR_RETURN_IF_ERROR(
      KeepParameters(Specs(std::move(header.entries)), &read));
  return read;
}

// `path` is that of the index whose text is `json`.
Result<ModelList> ReadIndex(const std::string& path, const std::string& json) {
  CASTOR_ASSIGN_OR_RETURN(const SafetensorsIndex index,
                          ParseSafetensorsIndex(json));
  const fs::path folder = fs::path(path).parent_path();
  CASTOR_ASSIGN_OR_RETURN(
      ShardedHeaders shards,
      ReadShards(index, folder.empty() ? "." : folder.string()));
  ModelList read;
  read.source = fmt::format("{} and {} header{}", FileName(path), shards.shards,
                            shards.shards == 1 ? "" : "s");
  read.notes = std::move(shards.notes);
  ListAliases(shards.metadata, shards.entries, &read);
  CASTOR_RETURN_IF_ERROR(
      KeepParameters(Specs(std::move(shards.entries)), &read));
  return read;
}

}  // namespace

bool IsWeightFile(std::string_view path) {
  return path.ends_with(".safetensors") || path.ends_with(".index.json");
}

Result<ModelList> ReadWeightFile(const std::string& path) {
  if (!path.ends_with(".index.json")) return ReadSafetensors(path);
  return ParseFile(path, kMaxIndexBytes, [&](const std::string& json) {
    return ReadIndex(path, json);
  });
}

}  // namespace castor
