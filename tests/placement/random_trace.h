// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_PLACEMENT_RANDOM_TRACE_H_
#define CASTOR_TESTS_PLACEMENT_RANDOM_TRACE_H_

// Random traces and problems that a step could really make: uses nest and end,
// gradients open and close once; and something else may take slots. Values.

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "placement/plan.h"
#include "placement/policy/next_use_policy.h"
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
  made.problem.prefetch.depth = pick(5);
  return made;
}

// Of one chunk in two, gradients are written over its parameters: each is a use
// of the chunk, of which there is no other when it is closed. What has
// gradients is no copy for the next step.
inline void PutGradsInPlace(std::mt19937_64& random, RandomCase* made,
                            int64_t extra) {
  PlanProblem& problem = made->problem;
  const size_t chunks = problem.param_class.size();
  std::vector<bool> in_place(chunks);
  for (size_t c = 0; c < chunks; ++c) {
    in_place[c] = random() % 2 == 0;
    if (in_place[c]) problem.survives_step[c] = false;
  }
  std::vector<int> pins(chunks, 0);
  for (const Access& access : made->trace) {
    const size_t chunk = access.chunk.index();
    pins[chunk] += access.kind == AccessKind::kUse;
    pins[chunk] -= access.kind == AccessKind::kUseEnd;
    if (access.kind == AccessKind::kGradClose && pins[chunk] > 0) {
      in_place[chunk] = false;
    }
  }
  Trace trace;
  for (const Access& access : made->trace) {
    if (in_place[access.chunk.index()]) {
      if (access.kind == AccessKind::kGradOpen) {
        trace.push_back({AccessKind::kUse, access.chunk});
      } else if (access.kind == AccessKind::kGradClose) {
        trace.push_back({AccessKind::kUseEnd, access.chunk});
      }
    }
    trace.push_back(access);
  }
  made->trace = std::move(trace);
  for (size_t c = 0; c < chunks; ++c) {
    if (in_place[c]) problem.grad_class[c] = kNoSlotClass;
  }
  const std::vector<int64_t> peaks = PinnedPeaks(made->trace, problem);
  for (size_t k = 0; k < peaks.size(); ++k) {
    problem.slots[k] = std::max<int64_t>(peaks[k], 1) + extra;
  }
}

// Something else takes slots for some time, twice a class, though never more
// than the trace leaves it.
inline void AddRandomLeases(std::mt19937_64& random, RandomCase* made) {
  const size_t moments = made->trace.size();
  PlanProblem& problem = made->problem;
  problem.slots_taken.assign(problem.slots.size(), {});
  for (size_t k = 0; k < problem.slots.size() && moments > 0; ++k) {
    std::vector<int64_t>& taken = problem.slots_taken[k];
    taken.assign(moments, 0);
    for (int lease = 0; lease < 2; ++lease) {
      const size_t begin = random() % moments;
      const size_t length = 1 + random() % moments;
      const int64_t slots = 1 + static_cast<int64_t>(random() % 3);
      for (size_t i = 0; i < length; ++i) taken[(begin + i) % moments] += slots;
    }
    std::vector<int> pins(problem.param_class.size(), 0);
    int64_t held = 0;
    for (size_t i = 0; i < moments; ++i) {
      const size_t chunk = made->trace[i].chunk.index();
      const bool params = problem.param_class[chunk] == static_cast<int>(k);
      const bool grads = problem.grad_class[chunk] == static_cast<int>(k);
      switch (made->trace[i].kind) {
        case AccessKind::kUse:
          if (pins[chunk]++ == 0 && params) ++held;
          break;
        case AccessKind::kUseEnd:
          if (--pins[chunk] == 0 && params) --held;
          break;
        case AccessKind::kGradOpen:
          held += grads;
          break;
        case AccessKind::kGradClose:
          held -= grads;
          break;
      }
      taken[i] = std::min(taken[i], problem.slots[k] - held);
    }
  }
}

// Of the fetches, most of the cost is for shards, of which one to four fit a
// slot.
inline void AddRandomShards(std::mt19937_64& random, PlanProblem* problem) {
  problem->shard_cost.clear();
  problem->shards_per_slot.clear();
  for (const double cost : problem->fetch_cost) {
    const auto gather = static_cast<double>(random() % 3);
    problem->shard_cost.push_back(std::max(0.0, cost - gather));
  }
  for (size_t k = 0; k < problem->slots.size(); ++k) {
    problem->shards_per_slot.push_back(1 + static_cast<int64_t>(random() % 4));
  }
}

}  // namespace castor

#endif  // CASTOR_TESTS_PLACEMENT_RANDOM_TRACE_H_
