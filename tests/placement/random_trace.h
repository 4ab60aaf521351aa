// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_PLACEMENT_RANDOM_TRACE_H_
#define CASTOR_TESTS_PLACEMENT_RANDOM_TRACE_H_

// Random traces and problems that a step could really make: uses nest and end,
// gradients open and close once. Values.

#include <algorithm>
#include <random>
#include <vector>

#include "placement/next_use_policy.h"
#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {

struct RandomCase {
  Trace trace;
  PlanProblem problem;
};

// `extra` slots beyond the least that serves the trace.
inline RandomCase MakeRandomCase(std::mt19937_64& random, int chunks,
                                 int accesses, int64_t extra, bool with_grads) {
  const auto pick = [&](int n) {
    return static_cast<int>(random() % static_cast<uint64_t>(n));
  };
  RandomCase made;
  std::vector<int> pins(static_cast<size_t>(chunks), 0);
  std::vector<bool> grad(static_cast<size_t>(chunks), false);
  const auto add = [&](AccessKind kind, int c) {
    made.trace.push_back({kind, ChunkId(c)});
  };
  int held = 0;
  for (int i = 0; i < accesses; ++i) {
    const int c = pick(chunks);
    const size_t at = static_cast<size_t>(c);
    if (with_grads && pick(4) == 0) {
      add(grad[at] ? AccessKind::kGradClose : AccessKind::kGradOpen, c);
      grad[at] = !grad[at];
    } else if (pins[at] > 0 && pick(2) == 0) {
      add(AccessKind::kUseEnd, c);
      --pins[at];
      --held;
    } else if (held < 4) {
      add(AccessKind::kUse, c);
      ++pins[at];
      ++held;
    }
  }
  for (int c = 0; c < chunks; ++c) {
    for (; pins[static_cast<size_t>(c)] > 0; --pins[static_cast<size_t>(c)]) {
      add(AccessKind::kUseEnd, c);
    }
    if (grad[static_cast<size_t>(c)]) add(AccessKind::kGradClose, c);
  }
  const int classes = 1 + pick(2);
  for (int c = 0; c < chunks; ++c) {
    const int slot_class = pick(classes);
    made.problem.param_class.push_back(pick(8) == 0 ? kNoSlotClass
                                                    : slot_class);
    made.problem.grad_class.push_back(slot_class);
    made.problem.fetch_cost.push_back(1 + pick(4));
    made.problem.survives_step.push_back(pick(4) == 0);
  }
  made.problem.slots.assign(static_cast<size_t>(classes), 1);
  std::vector<int64_t> peaks = PinnedPeaks(made.trace, made.problem);
  for (size_t k = 0; k < peaks.size(); ++k) {
    made.problem.slots[k] = std::max<int64_t>(peaks[k], 1) + extra;
  }
  made.problem.prefetch_depth = pick(5);
  return made;
}

}  // namespace castor

#endif  // CASTOR_TESTS_PLACEMENT_RANDOM_TRACE_H_
