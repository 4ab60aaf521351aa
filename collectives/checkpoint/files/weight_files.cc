// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/files/weight_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "chunk/text/quote.h"
#include "chunk/text/strict_json.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFile = ".safetensors";
constexpr std::string_view kIndex = ".index.json";
constexpr char kModelFile[] = "model.safetensors";
constexpr char kModelIndex[] = "model.safetensors.index.json";

class IndexHandler final : public JsonHandler {
 public:
  Status Open(const JsonPath& path, JsonContainer container) override {
    if (!IsMap(path)) return OkStatus();
    has_map_ = true;
    if (path.size() == 1 && container == JsonContainer::kObject) {
      return OkStatus();
    }
    return Malformed(
        "weight_map is not an object of file names by tensor names");
  }
  Status Close(const JsonPath&) override { return OkStatus(); }
  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    if (!IsMap(path)) return OkStatus();
    if (path.size() != 2 || scalar.kind != JsonKind::kString) {
      return Malformed(
          "weight_map is not an object of file names by tensor names");
    }
    // A name that leads elsewhere would open files that nobody offered.
    const std::string_view file = scalar.text;
    if (!file.ends_with(kFile) || file.find('/') != file.npos ||
        file.find('\0') != file.npos) {
      return Malformed(fmt::format(
          "weight_map sends tensor {} to {}, which is no .safetensors file "
          "beside the index",
          Quoted(path[1].key), Quoted(file)));
    }
    index_[std::string(file)].push_back(path[1].key);
    return OkStatus();
  }

  bool has_map() const { return has_map_; }
  WeightIndex Take() { return std::move(index_); }

 private:
  static bool IsMap(const JsonPath& path) {
    return !path.empty() && path[0].in_object && path[0].key == "weight_map";
  }

  bool has_map_ = false;
  WeightIndex index_;
};

}  // namespace

std::string FindWeightFiles(const std::string& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) {
    return path.ends_with(kFile) || path.ends_with(kIndex) ? path : "";
  }
  for (const char* name : {kModelIndex, kModelFile}) {
    const fs::path file = fs::path(path) / name;
    if (fs::is_regular_file(file, ignored)) return file.string();
  }
  return "";
}

Result<WeightIndex> ParseWeightIndex(std::string_view text) {
  IndexHandler handler;
  CASTOR_RETURN_IF_ERROR(ReadStrictJson(text, handler));
  if (!handler.has_map()) {
    return Malformed("the index has no weight_map, which names the files");
  }
  return handler.Take();
}

}  // namespace castor
