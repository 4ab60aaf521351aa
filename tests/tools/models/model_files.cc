// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/tools/models/model_files.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/text/json_value.h"

namespace castor {

namespace fs = std::filesystem;

TempFolder::TempFolder() {
  const char* base = std::getenv("TEST_TMPDIR");
  path_ = std::string(base != nullptr ? base : "/tmp") + "/modelsXXXXXX";
  CASTOR_CHECK(mkdtemp(path_.data()) != nullptr);
}

TempFolder::~TempFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

std::string TempFolder::Write(const std::string& name,
                              std::string_view bytes) const {
  const fs::path path = fs::path(path_) / name;
  fs::create_directories(path.parent_path());
  // A file that is cut and written again, ext4 has on the disk before it is
  // closed; a new one it has not.
  fs::remove(path);
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  CASTOR_CHECK(file.good());
  return path.string();
}

std::string TempFolder::WriteSparse(const std::string& name,
                                    std::string_view bytes,
                                    uint64_t size) const {
  const std::string path = Write(name, bytes);
  fs::resize_file(path, size);
  return path;
}

std::string SafetensorsHead(std::string_view json) {
  std::string head;
  for (int shift = 0; shift < 64; shift += 8) {
    head += static_cast<char>(uint64_t{json.size()} >> shift & 0xFF);
  }
  return head.append(json);
}

std::string SafetensorsFile(std::string_view json, uint64_t data_bytes) {
  return SafetensorsHead(json).append(data_bytes, '\0');
}

std::string SafetensorsJson(const std::vector<ParamSpec>& params,
                            uint64_t* data_bytes) {
  JsonValue header = JsonValue::Object();
  uint64_t end = 0;
  for (const ParamSpec& spec : params) {
    const Elements count = CountElements(spec.shape, spec.dtype).value();
    const uint64_t begin = end;
    end += static_cast<uint64_t>(BytesOf(count, spec.dtype).count());
    JsonValue& tensor = header[spec.name];
    tensor["dtype"] = DTypeName(spec.dtype);
    JsonValue& shape = tensor["shape"] = JsonValue::Array();
    for (const int64_t dimension : spec.shape) shape.Append(dimension);
    JsonValue& offsets = tensor["data_offsets"];
    offsets.Append(begin);
    offsets.Append(end);
  }
  if (data_bytes != nullptr) *data_bytes = end;
  return header.Dump();
}

std::string WriteSafetensors(const TempFolder& folder, const std::string& name,
                             const std::vector<ParamSpec>& params) {
  uint64_t data_bytes = 0;
  const std::string head =
      SafetensorsHead(SafetensorsJson(params, &data_bytes));
  return folder.WriteSparse(name, head, head.size() + data_bytes);
}

}  // namespace castor
