// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "collectives/checkpoint/checkpoint_manifest.h"

// What is accepted is written and read back as it is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor;  // NOLINT
  const auto manifest = ParseManifest(
      std::string_view(reinterpret_cast<const char*>(data), size));
  if (!manifest.ok()) {
    CASTOR_CHECK_EQ(ExitCode(manifest.status().code()), 4);
    CASTOR_CHECK(!manifest.status().message().empty());
    return 0;
  }
  const std::string text = WriteManifest(*manifest);
  const auto again = ParseManifest(text);
  CASTOR_CHECK(again.ok());
  CASTOR_CHECK(WriteManifest(*again) == text);
  return 0;
}
