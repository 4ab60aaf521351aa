// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_POLICY_TRACE_PINS_H_
#define CASTOR_PLACEMENT_POLICY_TRACE_PINS_H_

// What a trace pins, for the policies' .cc files: whether it is one of a step
// at all, how many slots it holds at each moment, and whether there are as
// many. Immutable. Part of what the policies share (slot_replay.h).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/status.h"
#include "placement/plan.h"
#include "placement/trace.h"

namespace castor::internal {

inline size_t Index(int32_t slot_class) {
  return static_cast<size_t>(slot_class);
}

// InvalidArgument, naming the moment, where the trace is none of a step, or
// where the problem says of other moments what is taken.
Status CheckTrace(const Trace& trace, const PlanProblem& problem);

// Slots of each class pinned at each moment, after that moment's access.
class PinnedCounts {
 public:
  PinnedCounts(const Trace& trace, const PlanProblem& problem);

  int64_t at(int32_t slot_class, size_t moment) const {
    return counts_[Index(slot_class)][moment];
  }
  int64_t peak(size_t slot_class) const {
    return *std::max_element(counts_[slot_class].begin(),
                             counts_[slot_class].end());
  }

 private:
  std::vector<std::vector<int64_t>> counts_;
};

// Infeasible, naming the moment and what is held, where more is pinned and
// taken than a class has slots. REQUIRES: CheckTrace is ok.
Status CheckFits(const Trace& trace, const PlanProblem& problem,
                 const PinnedCounts& pinned);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_POLICY_TRACE_PINS_H_
