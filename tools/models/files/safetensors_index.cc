// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/safetensors_index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "chunk/text/quote.h"
#include "chunk/text/strict_json.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

// A shard lies beside its index. A name that leads elsewhere would make the
// reader open files that nobody offered.
Status CheckShardName(const std::string& tensor, std::string_view shard) {
  std::string_view why;
  if (shard.empty()) why = "is empty";
  if (shard == "." || shard == "..") why = "is a folder";
  if (shard.find_first_of("/\\") != shard.npos) {
    why = "holds a path separator; shards lie beside their index";
  }
  if (shard.find('\0') != shard.npos) why = "holds a zero byte";
  if (why.empty() && !shard.ends_with(".safetensors")) {
    why =
        "does not end in .safetensors; other formats are not opened, give "
        "the model's config.json instead";
  }
  if (why.empty()) return OkStatus();
  return Malformed(
      fmt::format("weight_map sends tensor {} to shard {}, which "
                  "{}",
                  Quoted(tensor), Quoted(shard), why));
}

class IndexHandler final : public JsonHandler {
 public:
  bool has_weight_map() const { return has_weight_map_; }
  SafetensorsIndex Take() { return std::move(index_); }

  Status Open(const JsonPath& path, JsonContainer container) override {
    const bool wanted = path.empty() || path[0].key == "weight_map";
    if (wanted && (container == JsonContainer::kArray || path.size() > 1)) {
      return Malformed(fmt::format(
          "{} is {} where {} belongs", JsonPathText(path),
          container == JsonContainer::kArray ? "an array" : "an object",
          path.size() > 1 ? "a file name" : "an object"));
    }
    if (path.size() == 1 && wanted) has_weight_map_ = true;
    return OkStatus();
  }

  Status Close(const JsonPath&) override { return OkStatus(); }

  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    if (path.empty() || (path.size() == 1 && path[0].key == "weight_map")) {
      return Malformed(fmt::format("{} is {} where an object belongs",
                                   JsonPathText(path), JsonScalarText(scalar)));
    }
    if (path.size() == 2 && path[0].key == "metadata" &&
        path[1].key == "total_size" && scalar.kind == JsonKind::kUnsigned) {
      index_.total_size = scalar.number;
    }
    if (path[0].key != "weight_map") return OkStatus();
    if (scalar.kind != JsonKind::kString) {
      return Malformed(fmt::format("{} is {} where a file name belongs",
                                   JsonPathText(path), JsonScalarText(scalar)));
    }
    CASTOR_RETURN_IF_ERROR(CheckShardName(path[1].key, scalar.text));
    index_.tensors_by_shard[std::string(scalar.text)].push_back(path[1].key);
    return OkStatus();
  }

 private:
  SafetensorsIndex index_;
  bool has_weight_map_ = false;
};

// All missing shards at once, so that one download fetches them.
Status CheckShardsExist(const std::vector<std::string>& shards,
                        const std::filesystem::path& folder) {
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    std::error_code error;
    if (!std::filesystem::exists(folder / shard, error)) {
      missing.push_back(Quoted(shard));
    }
  }
  if (missing.empty()) return OkStatus();
  constexpr size_t kNamed = 10;
  const size_t count = missing.size();
  missing.resize(std::min(count, kNamed));
  return Malformed(fmt::format(
      "{} of {} shards are missing in {}: {}{}; download them, or give the "
      "model's config.json",
      count, shards.size(), QuotedPath(folder.string()),
      fmt::join(missing, ", "), count > kNamed ? ", ..." : ""));
}

// The index and the shard's header name the same tensors.
Status CheckAgreement(const std::string& shard,
                      const std::vector<std::string>& indexed,
                      const std::vector<SafetensorsEntry>& entries) {
  std::vector<std::string_view> here(indexed.begin(), indexed.end());
  std::vector<std::string_view> there;
  for (const SafetensorsEntry& entry : entries) there.push_back(entry.name);
  std::sort(here.begin(), here.end());
  std::sort(there.begin(), there.end());
  const auto [a, b] =
      std::mismatch(here.begin(), here.end(), there.begin(), there.end());
  if (a == here.end() && b == there.end()) return OkStatus();
  const bool only_indexed = b == there.end() || (a != here.end() && *a < *b);
  return Malformed(fmt::format(
      "shard {}: tensor {} is {}; index and shard are of different downloads",
      Quoted(shard), Quoted(only_indexed ? *a : *b),
      only_indexed ? "in the index but not in the shard"
                   : "in the shard, but the index does not send it there"));
}

}  // namespace

Result<SafetensorsHeader> ReadSafetensorsHeader(const InputFile& file) {
  return ReadSafetensorsHeader(file.path(), file.size(),
                               [&](uint64_t offset, uint64_t length) {
                                 return file.ReadAt(offset, length);
                               });
}

Result<SafetensorsIndex> ParseSafetensorsIndex(std::string_view json) {
  IndexHandler handler;
  CASTOR_RETURN_IF_ERROR(ReadStrictJson(json, handler));
  if (!handler.has_weight_map()) {
    return Malformed("the index has no weight_map, which names the shards");
  }
  return handler.Take();
}

Result<ShardedHeaders> ReadShards(const SafetensorsIndex& index,
                                  const std::string& folder) {
  std::vector<std::string> shards;
  for (const auto& [shard, tensors] : index.tensors_by_shard) {
    shards.push_back(shard);
  }
  std::sort(shards.begin(), shards.end(), NaturalLess);
  CASTOR_RETURN_IF_ERROR(CheckShardsExist(shards, folder));

  ShardedHeaders result;
  result.shards = shards.size();
  uint64_t tensor_bytes = 0;
  for (const std::string& shard : shards) {
    Result<InputFile> file = InputFile::OpenRegular(
        (std::filesystem::path(folder) / shard).string());
    if (!file.ok()) {
      // The argument was the index; what it names is its content.
      const Status& status = file.status();
      return status.code() == ErrorCode::kInvalidArgument
                 ? Malformed(std::string(status.message()))
                 : status;
    }
    CASTOR_ASSIGN_OR_RETURN(SafetensorsHeader header,
                            ReadSafetensorsHeader(*file));
    CASTOR_RETURN_IF_ERROR(CheckAgreement(
        shard, index.tensors_by_shard.at(shard), header.entries));
    if (!header.entries.empty()) tensor_bytes += header.entries.back().end;
    std::move(header.entries.begin(), header.entries.end(),
              std::back_inserter(result.entries));
    std::move(header.metadata.begin(), header.metadata.end(),
              std::back_inserter(result.metadata));
  }
  if (index.total_size && *index.total_size != tensor_bytes) {
    result.notes.push_back(fmt::format(
        "the index gives a total_size of {} bytes, the shards' headers {}; the "
        "headers are used",
        *index.total_size, tensor_bytes));
  }
  return result;
}

}  // namespace castor
