// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_POLICY_NEXT_USE_POLICY_H_
#define CASTOR_PLACEMENT_POLICY_NEXT_USE_POLICY_H_

// The `auto` policy: keep the copies whose next use is near and whose fetch is
// dear. Belady's rule weighed by cost (papers: distance over cost captures most
// of what an exact plan gains when fetches come from several tiers), over the
// cyclic trace. Fetches are then moved ahead into the time in which their slot
// lies idle, which fetches no more. Where that leaves too many on demand, slots
// are spared for fetching ahead (spare_slots.h), and a few more are fetched.
// Decisions depend on positions in the trace, never on a clock, so all ranks
// make the same ones. Pure functions, thread-safe.

#include <cstdint>
#include <span>

#include "chunk/base/status.h"
#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {

// Most slots of each class that the trace pins at one moment: uses and open
// gradients. A class with fewer slots cannot serve the trace. REQUIRES: the
// trace is one of a step.
std::vector<int64_t> PinnedPeaks(const Trace& trace,
                                 const PlanProblem& problem);

// A plan for one steady step. Infeasible, naming moment and chunks held, when
// the trace pins more than a class has slots; InvalidArgument, naming the
// moment, where it is none of a step: something ends that did not begin, or a
// gradient opens twice.
Result<Plan> PlanNextUse(const Trace& trace, const PlanProblem& problem);

// The victim while there is no trace yet: predicts a forward sweep in
// registration order followed by a backward one. `current` is the chunk being
// asked for, `forward` whether chunk ids have been rising. Returns the
// candidate used furthest in the future, ties to the lowest id. REQUIRES:
// candidates not empty.
ChunkId FirstStepVictim(std::span<const ChunkId> candidates, ChunkId current,
                        bool forward);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_POLICY_NEXT_USE_POLICY_H_
