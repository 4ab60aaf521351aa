// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/output_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "chunk/text/quote.h"
#include "collectives/checkpoint/checkpoint_manifest.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

// With links followed as far as the path exists.
fs::path Place(const fs::path& path) {
  std::error_code failed;
  fs::path place = fs::weakly_canonical(fs::absolute(path), failed);
  return failed ? fs::absolute(path, failed).lexically_normal() : place;
}

bool IsSameFile(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return Place(a) == Place(b) || fs::equivalent(a, b, ignored);
}

// Whether a command that reads the folder reads this file there.
bool IsReadIn(const NamedPath& folder, const fs::path& file) {
  if (folder.reads != nullptr) return folder.reads(file);
  std::error_code ignored;
  return file.extension() == ".safetensors" ||
         file.filename() == "config.json" ||
         file.filename().string().ends_with(".index.json") ||
         fs::exists(file.parent_path() / kManifestName, ignored);
}

// Whether the folder has the file, under any name, and a command reads it.
bool HasInput(const NamedPath& folder, const fs::path& file) {
  const fs::path outer = Place(folder.path);
  const fs::path inner = Place(file);
  const auto [end, rest] =
      std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  if (end == outer.end()) return IsReadIn(folder, inner);
  std::error_code failed;
  if (fs::hard_link_count(file, failed) < 2 || failed) return false;
  auto entry = fs::recursive_directory_iterator(
      outer, fs::directory_options::skip_permission_denied, failed);
  for (; !failed && entry != fs::recursive_directory_iterator();
       entry.increment(failed)) {
    std::error_code ignored;
    if (fs::equivalent(entry->path(), file, ignored) &&
        IsReadIn(folder, entry->path())) {
      return true;
    }
  }
  return false;
}

// Whether `file` is what one rank wrote of the record `name`.
bool IsOfRecord(const fs::path& name, const fs::path& file) {
  const std::string number = file.extension().string();
  return number.size() > 1 &&
         std::all_of(number.begin() + 1, number.end(),
                     [](char c) { return c >= '0' && c <= '9'; }) &&
         IsSameFile(name, fs::path(file).replace_extension());
}

// Whether two flags write one file, or one of them a part of the other's
// record.
bool AreOneOutput(const fs::path& a, const fs::path& b) {
  return IsSameFile(a, b) || IsOfRecord(a, b) || IsOfRecord(b, a);
}

bool Replaces(const fs::path& output, const NamedPath& input) {
  std::error_code ignored;
  const fs::path path = input.path;
  if (!fs::is_directory(path, ignored)) {
    if (IsSameFile(output, path) || IsOfRecord(path, output)) return true;
    if (!path.string().ends_with(".index.json")) return false;
    return output.extension() == ".safetensors" &&
           Place(output).parent_path() == Place(path).parent_path();
  }
  return fs::is_regular_file(output, ignored) && HasInput(input, output);
}

}  // namespace

Status CheckOutputs(std::span<const NamedPath> inputs,
                    std::span<const NamedPath> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NamedPath& output = outputs[i];
    std::error_code ignored;
    const fs::file_status there = fs::status(output.path, ignored);
    if (output.path.empty() ||
        (fs::exists(there) && !fs::is_regular_file(there)))
      continue;
    for (const NamedPath& input : inputs) {
      // As an input, - is the standard input.
      if (input.path.empty() || input.path == "-" ||
          !Replaces(output.path, input))
        continue;
      return InvalidArgument(
          fmt::format("{} {} would overwrite what {} names; name another file",
                      output.flag, QuotedPath(output.path), input.flag));
    }
    for (const NamedPath& other : outputs.first(i)) {
      if (other.path.empty() || other.flag == output.flag ||
          !AreOneOutput(output.path, other.path))
        continue;
      return InvalidArgument(
          fmt::format("{} and {} would both be written to {}; name two files",
                      other.flag, output.flag, QuotedPath(output.path)));
    }
  }
  return OkStatus();
}

}  // namespace castor
