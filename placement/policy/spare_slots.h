// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_POLICY_SPARE_SLOTS_H_
#define CASTOR_PLACEMENT_POLICY_SPARE_SLOTS_H_

// Slots that are spared for fetching ahead, for the policies' .cc files. Where
// a trace is served with all slots, the slot of a fetch may be in use until
// right before it, and nothing is fetched ahead. So the trace is served with
// fewer; the others take turns: a fetch goes to the one that has been idle
// longest, and the slot that the replay would have given it is spared instead.
// Its copy stays until that slot's own turn, and need not be fetched if it is
// used before. Pure functions, thread-safe. Part of what the policies share
// (slot_replay.h).

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
// slots when it begins; those that are there when it ends, and still valid
// then, take their place. REQUIRES: a spare slot for each copy.
ServedTrace UseSpareSlots(const PlanProblem& problem,
                          const std::vector<int64_t>& spare, ServedTrace served,
                          std::vector<ChunkId>* copies);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_POLICY_SPARE_SLOTS_H_
