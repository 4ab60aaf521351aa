// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRACE_H_
#define CASTOR_PLACEMENT_TRACE_H_

// The ordered accesses of one step, as the engine records them. A position in
// it is a moment. The trace is cyclic: the end of one step is followed by the
// start of the next. Value.

#include <cstdint>
#include <string_view>
#include <vector>

#include "chunk/base/ids.h"

namespace castor {

enum class AccessKind : uint8_t {
  kUse,        // the trainer begins to hold the chunk's parameters
  kUseEnd,     // and ends; uses of one chunk may nest
  kGradOpen,   // the chunk's gradient takes a gathered slot, or its copy's
  kGradClose,  // and is reduced
};

constexpr std::string_view AccessKindName(AccessKind kind) {
  switch (kind) {
    case AccessKind::kUse:
      return "use";
    case AccessKind::kUseEnd:
      return "end of use";
    case AccessKind::kGradOpen:
      return "gradient open";
    case AccessKind::kGradClose:
      return "gradient close";
  }
  return "unknown";
}

struct Access {
  AccessKind kind = AccessKind::kUse;
  ChunkId chunk;

  friend bool operator==(const Access&, const Access&) = default;
};

using Trace = std::vector<Access>;

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TRACE_H_
