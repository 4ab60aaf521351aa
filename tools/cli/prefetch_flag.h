// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_PREFETCH_FLAG_H_
#define CASTOR_TOOLS_CLI_PREFETCH_FLAG_H_

// The flag --prefetch N or --prefetch deadlines, the same in every program.
// Pure function, thread-safe.

#include <cstdint>
#include <optional>
#include <string>

#include "chunk/base/status.h"
#include "placement/plan.h"

namespace castor {

// For the flag's help.
inline constexpr char kPrefetchFlagHelp[] =
    "gathers under way ahead of use, or deadlines: each as late as it may be "
    "begun, by the machine's links and the step's compute time (3)";

inline constexpr int kDefaultPrefetchDepth = 3;
inline constexpr int64_t kMaxPrefetchDepth = 1024;

struct PrefetchChoice {
  PrefetchMode mode = PrefetchMode::kDepth;
  // With deadlines: for how many slots are set aside.
  int depth = kDefaultPrefetchDepth;
};

// The default where the flag was not given. InvalidArgument, naming the flag
// and the value, where that is neither a number up to kMaxPrefetchDepth nor
// "deadlines".
Result<PrefetchChoice> ParsePrefetchFlag(
    const std::optional<std::string>& text);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_PREFETCH_FLAG_H_
