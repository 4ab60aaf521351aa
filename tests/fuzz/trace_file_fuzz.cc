// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "placement/trace/step_trace.h"
#include "placement/trace/trace_file.h"

// What is accepted is a step; and it is written and read back as it is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor;  // NOLINT
  const auto file =
      ParseTrace(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!file.ok()) {
    CASTOR_CHECK_EQ(ExitCode(file.status().code()), 4);
    CASTOR_CHECK(!file.status().message().empty());
    return 0;
  }
  CASTOR_CHECK(ValidateStep(file->step, file->chunks.size()).ok());
  CASTOR_CHECK_EQ(LeasedBytes(file->step).size(), file->step.accesses.size());
  const auto again = ParseTrace(WriteTrace(*file));
  CASTOR_CHECK(again.ok());
  CASTOR_CHECK(*again == *file);
  return 0;
}
