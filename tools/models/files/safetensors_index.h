// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FILES_SAFETENSORS_INDEX_H_
#define CASTOR_TOOLS_MODELS_FILES_SAFETENSORS_INDEX_H_

// Part of the weight files (weight_file.h): the header of a safetensors file
// (chunk/layout/safetensors_format.h), and `model.safetensors.index.json`,
// which says which shard of a checkpoint holds which tensor. The index knows no
// shapes; the shards' headers do. Pure functions apart from reading the named
// files, thread-safe.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/layout/safetensors_format.h"
#include "tools/models/files/input_file.h"

namespace castor {

// Reads 8 + N bytes of `file` at most. Malformed names the file and the tensor
// or byte. REQUIRES: file.is_regular().
Result<SafetensorsHeader> ReadSafetensorsHeader(const InputFile& file);

// A longer index is refused.
inline constexpr uint64_t kMaxIndexBytes = 100'000'000;

struct SafetensorsIndex {
  // Tensor names by shard; every shard name is a plain file name, never a path.
  std::map<std::string, std::vector<std::string>> tensors_by_shard;
  std::optional<uint64_t> total_size;  // of metadata, as its writer counted it
};

Result<SafetensorsIndex> ParseSafetensorsIndex(std::string_view json);

struct ShardedHeaders {
  // All shards' entries, shard by shard in natural order of their names.
  std::vector<SafetensorsEntry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;  // of all shards
  size_t shards = 0;
  std::vector<std::string> notes;
};

// Opens the header of every shard beside the index in `folder`. Malformed,
// naming what is wrong, where shards are missing or disagree with the index.
Result<ShardedHeaders> ReadShards(const SafetensorsIndex& index,
                                  const std::string& folder);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FILES_SAFETENSORS_INDEX_H_
