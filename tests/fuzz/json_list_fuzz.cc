// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/list_checks.h"
#include "tools/models/files/param_list.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  castor::CheckList(castor::ParseJsonList(
      std::string_view(reinterpret_cast<const char*>(data), size)));
  return 0;
}
