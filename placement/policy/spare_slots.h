// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_POLICY_SPARE_SLOTS_H_
#define CASTOR_PLACEMENT_POLICY_SPARE_SLOTS_H_

// Slots that are spared for fetching ahead, for the policies' .cc files. Where
// a trace is served with all slots, the slot of a fetch may be in use until
// right before it, and nothing is fetched ahead. So the trace is served with
// fewer slots, and the others take turns. A fetch goes to the spare slot that
// has been idle longest. The slot that the replay gave this fetch is spared in
// its place, and keeps its copy until its own turn comes. A copy that is used
// before then need not be fetched. Pure functions, thread-safe. Part of what
// the policies share (slot_replay.h).

#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "placement/plan.h"
#include "placement/policy/slot_replay.h"
#include "placement/trace.h"

namespace castor::internal {

// By class: slots that no moment of the trace needs, at most as many as may be
// fetched ahead. REQUIRES: CheckTrace and CheckFits of trace_pins.h are ok.
std::vector<int64_t> SpareSlots(const Trace& trace, const PlanProblem& problem);

// The step that was served with fewer slots, with these. `copies` are in spare
// slots when the step begins. They become those that are there when the step
// ends, and still valid then. REQUIRES: a spare slot for each copy.
ServedTrace UseSpareSlots(const PlanProblem& problem,
                          const std::vector<int64_t>& spare, ServedTrace served,
                          std::vector<ChunkId>* copies);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_POLICY_SPARE_SLOTS_H_
