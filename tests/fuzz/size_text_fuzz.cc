// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/quantity_text.h"
#include "chunk/text/units_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor;  // NOLINT
  const auto parsed =
      ParseSize(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed.ok()) {
    CASTOR_CHECK_EQ(ExitCode(parsed.status().code()), 2);
    CASTOR_CHECK(!parsed.status().message().empty());
    return 0;
  }
  CASTOR_CHECK_GE(parsed->count(), 0);
  CASTOR_CHECK(!FormatSize(*parsed).empty());
  const auto again = ParseSize(FormatSizeExact(*parsed));
  CASTOR_CHECK(again.ok());
  CASTOR_CHECK_EQ(again->count(), parsed->count());
  return 0;
}
