// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRACE_TRACE_ACCESS_NAMES_H_
#define CASTOR_PLACEMENT_TRACE_TRACE_ACCESS_NAMES_H_

// What a trace file calls the kinds of access, for the .cc files of
// trace_file.h. Values. Part of the trace file (trace_file.h).

#include <array>
#include <cstddef>
#include <string_view>

#include "placement/trace.h"

namespace castor::internal {

// By AccessKind.
inline constexpr std::array<std::string_view, 4> kAccessKeys = {
    "use", "use_end", "grad_open", "grad_close"};

constexpr std::string_view AccessKey(AccessKind kind) {
  return kAccessKeys[static_cast<size_t>(kind)];
}

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_TRACE_TRACE_ACCESS_NAMES_H_
