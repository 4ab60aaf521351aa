// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace_pins.h"

#include <fmt/format.h>

namespace castor::internal {

Status CheckTrace(const Trace& trace, const PlanProblem& problem) {
  std::vector<int> pins(problem.param_class.size(), 0);
  std::vector<bool> open(problem.param_class.size(), false);
  for (size_t i = 0; i < trace.size(); ++i) {
    const ChunkId chunk = trace[i].chunk;
    bool legal = chunk.valid() && chunk.index() < pins.size();
    if (legal) {
      switch (trace[i].kind) {
        case AccessKind::kUse:
          ++pins[chunk.index()];
          break;
        case AccessKind::kUseEnd:
          legal = --pins[chunk.index()] >= 0;
          break;
        case AccessKind::kGradOpen:
        case AccessKind::kGradClose:
          legal =
              open[chunk.index()] == (trace[i].kind == AccessKind::kGradClose);
          open[chunk.index()] = !open[chunk.index()];
          break;
      }
    }
    if (!legal) {
      return InvalidArgument(fmt::format(
          "moment {} of the trace ({} of chunk {}) is none of a step: there is "
          "no such chunk, or it ends without a begin, or begins twice",
          i, AccessKindName(trace[i].kind), chunk.value()));
    }
  }
  return OkStatus();
}

PinnedCounts::PinnedCounts(const Trace& trace, const PlanProblem& problem)
    : counts_(problem.slots.size(), std::vector<int64_t>(trace.size() + 1, 0)) {
  std::vector<int> pins(problem.param_class.size(), 0);
  std::vector<int64_t> now(problem.slots.size(), 0);
  for (size_t i = 0; i < trace.size(); ++i) {
    const size_t chunk = trace[i].chunk.index();
    const int32_t params = problem.param_class[chunk];
    const int32_t grads = problem.grad_class[chunk];
    switch (trace[i].kind) {
      case AccessKind::kUse:
        if (pins[chunk]++ == 0 && params != kNoSlotClass) ++now[Index(params)];
        break;
      case AccessKind::kUseEnd:
        if (--pins[chunk] == 0 && params != kNoSlotClass) --now[Index(params)];
        break;
      case AccessKind::kGradOpen:
        ++now[Index(grads)];
        break;
      case AccessKind::kGradClose:
        --now[Index(grads)];
        break;
    }
    for (size_t c = 0; c < now.size(); ++c) counts_[c][i] = now[c];
  }
}

}  // namespace castor::internal
