// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/micro_batches.h"

#include <cstdint>
#include <utility>

namespace castor {

std::vector<size_t> MicroBatchBegins(const Trace& trace,
                                     const std::vector<bool>& lacks) {
  std::vector<size_t> begins = {0};
  // From there on the trace has ends of gradients alone.
  size_t tail = trace.size();
  while (tail > 0 && trace[tail - 1].kind == AccessKind::kGradClose) --tail;
  std::vector<int64_t> opened(lacks.size(), -1);  // the last time
  size_t sweep = 0;  // the first use since a gradient was complete
  bool complete = false;
  for (size_t i = 0; i < trace.size(); ++i) {
    const auto [kind, chunk] = trace[i];
    int64_t& last = opened[chunk.index()];
    const bool again = last >= static_cast<int64_t>(begins.back());
    switch (kind) {
      case AccessKind::kUse:
        if (std::exchange(complete, false)) sweep = i;
        break;
      case AccessKind::kUseEnd:
        break;
      case AccessKind::kGradOpen:
        // A sweep forward comes before its gradients.
        if (again) begins.push_back(sweep > begins.back() ? sweep : i);
        last = static_cast<int64_t>(i);
        break;
      case AccessKind::kGradClose:
        complete = true;
        if (again && lacks[chunk.index()] && i < tail) begins.push_back(i);
        break;
    }
  }
  return begins;
}

}  // namespace castor
