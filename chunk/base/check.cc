// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace castor::internal {

void CheckFailed(const char* file, int line, std::string_view condition,
                 std::string_view operands) {
  std::fprintf(stderr, "castor: internal error at %s:%d: CHECK(%.*s) failed",
               file, line, static_cast<int>(condition.size()),
               condition.data());
  if (!operands.empty()) {
    std::fprintf(stderr, " (%.*s)", static_cast<int>(operands.size()),
                 operands.data());
  }
  std::fputc('\n', stderr);
  std::abort();
}

}  // namespace castor::internal
