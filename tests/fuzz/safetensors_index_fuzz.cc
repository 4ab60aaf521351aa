// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "tools/models/files/safetensors_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor;  // NOLINT
  const auto index = ParseSafetensorsIndex(
      std::string_view(reinterpret_cast<const char*>(data), size));
  if (!index.ok()) {
    CASTOR_CHECK_EQ(ExitCode(index.status().code()), 4);
    CASTOR_CHECK(!index.status().message().empty());
    return 0;
  }
  // No name leads out of the folder.
  for (const auto& [shard, tensors] : index->tensors_by_shard) {
    CASTOR_CHECK(!tensors.empty());
    CASTOR_CHECK(shard.find('/') == std::string::npos);
    CASTOR_CHECK(shard.find('\0') == std::string::npos);
    CASTOR_CHECK(shard.ends_with(".safetensors"));
  }
  return 0;
}
