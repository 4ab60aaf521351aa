// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_MODELS_MODEL_FILES_H_
#define CASTOR_TESTS_TOOLS_MODELS_MODEL_FILES_H_

// Real model files, good and bad, in a folder that goes with the test. Owner
// thread only.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/param_spec.h"

namespace castor {

// An empty folder of its own, removed with everything in it.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string At(const std::string& name) const { return path_ + "/" + name; }
  // Both make the folders above the file and return its path.
  std::string Write(const std::string& name, std::string_view bytes) const;
  // The file ends with zeros that take no disk, at `size` bytes in all.
  std::string WriteSparse(const std::string& name, std::string_view bytes,
                          uint64_t size) const;

 private:
  std::string path_;
};

// 8 bytes of length, then `json`.
std::string SafetensorsHead(std::string_view json);

// The whole file: head and `data_bytes` zeros.
std::string SafetensorsFile(std::string_view json, uint64_t data_bytes);

// A valid header for `params`, laid out in their order; `data_bytes`, if given,
// becomes the size of the data.
std::string SafetensorsJson(const std::vector<ParamSpec>& params,
                            uint64_t* data_bytes = nullptr);

// A valid file of `params`, its data sparse.
std::string WriteSafetensors(const TempFolder& folder, const std::string& name,
                             const std::vector<ParamSpec>& params);

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_MODELS_MODEL_FILES_H_
