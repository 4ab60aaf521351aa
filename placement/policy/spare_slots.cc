// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/spare_slots.h"

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"
#include "placement/policy/trace_pins.h"

namespace castor::internal {
namespace {

struct Spared {
  ChunkId copy;  // not valid: none
  int64_t idle_since = -1;
};

bool IdleLonger(const Spared& a, const Spared& b) {
  return a.idle_since < b.idle_since;
}

}  // namespace

std::vector<int64_t> SpareSlots(const Trace& trace,
                                const PlanProblem& problem) {
  const PinnedCounts pinned(trace, problem);
  std::vector<int64_t> spare;
  for (size_t c = 0; c < problem.slots.size(); ++c) {
    int64_t most = 0;
    for (size_t i = 0; i < trace.size(); ++i) {
      most = std::max(most, pinned.at(static_cast<int32_t>(c), i) +
                                problem.TakenAfter(c, i));
    }
    spare.push_back(
        std::min<int64_t>(problem.slots[c] - most, problem.prefetch.depth));
  }
  return spare;
}

ServedTrace UseSpareSlots(const PlanProblem& problem,
                          const std::vector<int64_t>& spare, ServedTrace served,
                          std::vector<ChunkId>* copies) {
  std::vector<std::vector<Spared>> spared(spare.size());
  for (ChunkId copy : *copies) {
    spared[Index(problem.param_class[copy.index()])].push_back({copy});
  }
  for (size_t c = 0; c < spare.size(); ++c) {
    CASTOR_CHECK_LE(std::ssize(spared[c]), spare[c]);
    spared[c].resize(static_cast<size_t>(spare[c]));
  }
  std::vector<DemandFetch> fetches;
  for (DemandFetch& fetch : served.fetches) {
    std::vector<Spared>& slots =
        spared[Index(problem.param_class[fetch.chunk.index()])];
    slots.push_back({fetch.victim, fetch.idle_since});
    const auto there = std::find_if(
        slots.begin(), slots.end(),
        [&](const Spared& slot) { return slot.copy == fetch.chunk; });
    if (there != slots.end()) {
      slots.erase(there);
      continue;
    }
    const auto taken = std::min_element(slots.begin(), slots.end(), IdleLonger);
    fetch.victim = taken->copy;
    fetch.idle_since = taken->idle_since;
    slots.erase(taken);
    fetches.push_back(fetch);
  }
  served.fetches = std::move(fetches);
  copies->clear();
  for (const std::vector<Spared>& slots : spared) {
    for (const Spared& slot : slots) {
      if (slot.copy.valid() && problem.survives_step[slot.copy.index()]) {
        copies->push_back(slot.copy);
      }
    }
  }
  return served;
}

}  // namespace castor::internal
