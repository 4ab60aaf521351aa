// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "tests/fuzz/list_checks.h"
#include "tools/models/files/param_list.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const castor::Result<castor::ParamList> list = castor::ParseTsvList(
      std::string_view(reinterpret_cast<const char*>(data), size));
  if (!list.ok()) {
    castor::CheckList(list.status());
    return 0;
  }
  castor::CheckList(list->params);
  if (list->step.uses.empty()) return 0;
  const std::string text = castor::WriteTsvList(list->params, list->step);
  const castor::Result<castor::ParamList> again = castor::ParseTsvList(text);
  CASTOR_CHECK(again.ok());
  CASTOR_CHECK(again->step == list->step);
  return 0;
}
