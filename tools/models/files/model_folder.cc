// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/model_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "chunk/text/quote.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kIndexEnd = ".safetensors.index.json";
constexpr std::string_view kWeightsEnd = ".safetensors";

// Pickles run code when they are loaded, so they are not even looked into. GGUF
// holds quantised copies under other names, which nobody trains from.
bool IsNeverOpened(const std::string& name) {
  return name.ends_with(".bin") || name.ends_with(".bin.index.json") ||
         name.ends_with(".pt") || name.ends_with(".pth") ||
         name.ends_with(".gguf");
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Whole names that every model's folder uses, and so say nothing.
bool IsCommonName(const std::string& name) {
  return name == kConfig || name == "model.safetensors" ||
         name == "model.safetensors.index.json";
}

std::string FolderName(const fs::path& folder) {
  std::error_code error;
  fs::path whole = fs::weakly_canonical(folder, error);
  if (error) whole = folder;
  // A hub cache keeps models--ORG--NAME/snapshots/REVISION.
  const fs::path above = whole.parent_path();
  const std::string cache = above.parent_path().filename().string();
  constexpr std::string_view kCachePrefix = "models--";
  if (above.filename() == "snapshots" && cache.starts_with(kCachePrefix)) {
    const std::string name = cache.substr(kCachePrefix.size());
    const size_t dashes = name.find("--");
    if (dashes == name.npos) return name;
    return fmt::format("{}/{}", name.substr(0, dashes),
                       name.substr(dashes + 2));
  }
  return whole.filename().string();
}

Status Ambiguous(const std::string& path, std::vector<std::string> names) {
  constexpr size_t kNamed = 5;
  const size_t count = names.size();
  names.resize(std::min(count, kNamed));
  return InvalidArgument(
      fmt::format("{} holds {} weight files and no rule chooses among them; "
                  "name one of {}{}",
                  QuotedPath(path), count, fmt::join(names, ", "),
                  count > kNamed ? ", ..." : ""));
}

}  // namespace

Result<ModelFolder> LookIntoFolder(const std::string& path) {
  std::vector<std::string> indices;
  std::vector<std::string> weights;
  std::vector<std::string> unread;
  std::error_code error;
  fs::directory_iterator entry(path, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(kIndexEnd)) indices.push_back(name);
    if (name.ends_with(kWeightsEnd)) weights.push_back(name);
    if (IsNeverOpened(name)) unread.push_back(name);
  }
  if (error) {
    return IoError(fmt::format("{}: the system refused to list the folder: {}",
                               QuotedPath(path), error.message()));
  }
  std::sort(indices.begin(), indices.end());
  std::sort(weights.begin(), weights.end());
  std::sort(unread.begin(), unread.end());

  const fs::path folder(path);
  ModelFolder found;
  if (IsFile(folder / kConfig)) found.config = (folder / kConfig).string();
  auto choose = [&](const std::string& name) {
    found.weights = (folder / name).string();
    return found;
  };
  for (const std::string name :
       {"model.safetensors", "model.safetensors.index.json"}) {
    if (IsFile(folder / name)) return choose(name);
  }
  if (indices.size() == 1) return choose(indices.front());
  if (indices.size() > 1) return Ambiguous(path, indices);
  if (weights.size() == 1) return choose(weights.front());
  if (weights.size() > 1) return Ambiguous(path, weights);
  if (!found.config.empty()) {
    found.unread = std::move(unread);
    return found;
  }
  if (!unread.empty()) {
    return InvalidArgument(fmt::format(
        "{} holds no model that can be read: {} is of a kind that is never "
        "opened, and there is no config.json; put the model's config.json "
        "beside it, or save the weights as .safetensors",
        QuotedPath(path), Quoted(unread.front())));
  }
  return InvalidArgument(fmt::format(
      "{} holds no model: no .safetensors, no *.safetensors.index.json "
      "and no config.json",
      QuotedPath(path)));
}

std::string ConfigBeside(const std::string& path) {
  const fs::path config = fs::path(path).parent_path() / kConfig;
  return IsFile(config) ? config.string() : std::string();
}

std::string ModelNameOf(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return FolderName(path);
  const fs::path file(path);
  const std::string name = file.filename().string();
  if (!IsCommonName(name)) {
    return name.ends_with(kIndexEnd)
               ? name.substr(0, name.size() - kIndexEnd.size())
               : file.stem().string();
  }
  const std::string folder =
      FolderName(file.has_parent_path() ? file.parent_path() : fs::path("."));
  return folder.empty() ? name : folder;
}

}  // namespace castor
