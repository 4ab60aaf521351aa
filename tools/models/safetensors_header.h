// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_SAFETENSORS_HEADER_H_
#define CASTOR_TOOLS_MODELS_SAFETENSORS_HEADER_H_

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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "tools/models/input_file.h"

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
};

// Reads 8 + N bytes of `file` at most. Malformed names the file and the tensor
// or byte. REQUIRES: file.is_regular().
Result<SafetensorsHeader> ReadSafetensorsHeader(const InputFile& file);

// The N bytes of JSON; `data_bytes` is what the file holds behind them.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json,
                                                 uint64_t data_bytes);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_SAFETENSORS_HEADER_H_
