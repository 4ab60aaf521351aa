// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/trace_pins.h"

#include <fmt/format.h>

#include <string>

namespace castor::internal {

namespace {

Status CheckTaken(const Trace& trace, const PlanProblem& problem) {
  if (problem.slots_taken.empty()) return OkStatus();
  if (problem.slots_taken.size() != problem.slots.size()) {
    return InvalidArgument(fmt::format(
        "slots taken are given for {} classes of {}; give none, or a list for "
        "each class",
        problem.slots_taken.size(), problem.slots.size()));
  }
  for (size_t c = 0; c < problem.slots.size(); ++c) {
    const std::vector<int64_t>& taken = problem.slots_taken[c];
    if (!taken.empty() && taken.size() != trace.size()) {
      return InvalidArgument(fmt::format(
          "slots taken of class {} are given for {} moments and the trace has "
          "{}; give one number for each",
          c, taken.size(), trace.size()));
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      if (taken[i] < 0) {
        return InvalidArgument(fmt::format(
            "{} slots of class {} taken at moment {} have no meaning", taken[i],
            c, i));
      }
    }
  }
  return OkStatus();
}

}  // namespace

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
  return CheckTaken(trace, problem);
}

Status CheckFits(const Trace& trace, const PlanProblem& problem,
                 const PinnedCounts& pinned) {
  for (size_t c = 0; c < problem.slots.size(); ++c) {
    for (size_t i = 0; i < trace.size(); ++i) {
      const int64_t held = pinned.at(static_cast<int32_t>(c), i);
      const int64_t taken = problem.TakenAfter(c, i);
      if (held + taken <= problem.slots[c]) continue;
      const std::string lease =
          taken > 0 ? fmt::format(", {} of them on lease", taken) : "";
      return Infeasible(fmt::format(
          "the step holds {} gathered chunks at moment {} ({} of chunk {}) and "
          "class {} has {} slots{}; raise the device budget or hold fewer "
          "parameters at once",
          held, i, AccessKindName(trace[i].kind), trace[i].chunk.value(), c,
          problem.slots[c], lease));
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
        if (grads != kNoSlotClass) ++now[Index(grads)];
        break;
      case AccessKind::kGradClose:
        if (grads != kNoSlotClass) --now[Index(grads)];
        break;
    }
    for (size_t c = 0; c < now.size(); ++c) counts_[c][i] = now[c];
  }
}

}  // namespace castor::internal
