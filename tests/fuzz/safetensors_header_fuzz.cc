// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Input: 8 bytes, how much data the file holds, then the header's JSON.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/layout/safetensors_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor;  // NOLINT
  if (size < 8) return 0;
  uint64_t data_bytes = 0;
  for (size_t i = 8; i-- > 0;) data_bytes = data_bytes << 8 | data[i];
  const std::string_view json(reinterpret_cast<const char*>(data) + 8,
                              size - 8);
  const auto header = ParseSafetensorsHeader(json, data_bytes);
  if (!header.ok()) {
    CASTOR_CHECK_EQ(ExitCode(header.status().code()), 4);
    CASTOR_CHECK(!header.status().message().empty());
    return 0;
  }
  // What was accepted fills the file without a hole.
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : header->entries) {
    CASTOR_CHECK_EQ(entry.begin, end);
    CASTOR_CHECK_GE(entry.end, entry.begin);
    end = entry.end;
  }
  CASTOR_CHECK_EQ(end, data_bytes);
  // And can be written again, but for names that no tensor may have.
  const auto written =
      WriteSafetensorsHeader(header->entries, header->metadata);
  if (!written.ok()) return 0;
  const auto again = ParseSafetensorsHeader(written->substr(8), data_bytes);
  CASTOR_CHECK(again.ok());
  CASTOR_CHECK_EQ(again->entries.size(), header->entries.size());
  CASTOR_CHECK(*WriteSafetensorsHeader(again->entries, again->metadata) ==
               *written);
  return 0;
}
