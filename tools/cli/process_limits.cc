// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/process_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>

namespace castor {
namespace {

// What OpenBLAS, MPI and Castor itself have on a stack fits.
constexpr rlim_t kLeastStack = rlim_t{256} << 10;

}  // namespace

Status PrepareForLimits() {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit stack;
  if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= kLeastStack) {
    return OkStatus();
  }
  return Unavailable(fmt::format(
      "a stack may have {} KiB (ulimit -s), and threads need {} KiB: raise the "
      "limit",
      stack.rlim_cur >> 10, kLeastStack >> 10));
}

}  // namespace castor
