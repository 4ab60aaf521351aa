// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_LAYOUT_SAFETENSORS_FORMAT_H_
#define CASTOR_CHUNK_LAYOUT_SAFETENSORS_FORMAT_H_

// The header of a safetensors file: 8 bytes of length N, N bytes of JSON, and
// nothing of the data behind them. Every rule of the format is enforced, so
// that what is returned can be relied upon:
//
//   0        8                     8+N                              file size
//   | N (LE) | {"name":{...},...}  | data of tensor | data of tensor |
//              then spaces only     begin        end = next begin
//
// Pure functions, thread-safe.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"

namespace castor {

// A longer header is refused before it is read, as the reference reader does.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // of its data, from the end of the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by place of their data
  std::vector<std::pair<std::string, std::string>> metadata;  // as written
  uint64_t data_begin = 0;  // in the file; 0 where only the JSON was read
};

// Exactly `length` bytes at `offset` of a file, both inside its size.
using ReadFileAt =
    std::function<Result<std::string>(uint64_t offset, uint64_t length)>;

// Reads 8 + N bytes at most. Malformed names `path` and the tensor or byte;
// what `read_at` fails with is returned.
Result<SafetensorsHeader> ReadSafetensorsHeader(std::string_view path,
                                                uint64_t file_size,
                                                const ReadFileAt& read_at);

// The N bytes of JSON; `data_bytes` is what the file holds behind them.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json,
                                                 uint64_t data_bytes);

// The 8 + N bytes that stand before the data, a multiple of 8 of them; the same
// entries give the same bytes. InvalidArgument where a name is empty, not
// UTF-8, given twice or the format's own, or where the header becomes longer
// than readers take. REQUIRES: entries lie one behind the other, from 0 on.
Result<std::string> WriteSafetensorsHeader(
    std::span<const SafetensorsEntry> entries,
    std::span<const std::pair<std::string, std::string>> metadata);

}  // namespace castor

#endif  // CASTOR_CHUNK_LAYOUT_SAFETENSORS_FORMAT_H_
