// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_POLICY_FETCH_SCHEDULE_H_
#define CASTOR_PLACEMENT_POLICY_FETCH_SCHEDULE_H_

// When each fetch begins, for the policies' .cc files. Pure, thread-safe. Part
// of what the policies share (slot_replay.h).

#include <vector>

#include "chunk/base/ids.h"
#include "placement/plan.h"
#include "placement/policy/slot_replay.h"
#include "placement/trace.h"

namespace castor::internal {

// The plan of a step that begins with the copies `kept` and makes what was
// served. Every fetch begins after the access that left its slot idle, and in
// the order of use: so fetching ahead never fetches more. By depth no more than
// prefetch.depth begin before their use at one time; where that is not ahead of
// the use, on demand. By deadlines, where the problem has the times, each
// begins as late as it may (fetch_deadlines.h), however many are under way.
Plan ScheduleFetches(const Trace& trace, const PlanProblem& problem,
                     const std::vector<ChunkId>& kept,
                     const ServedTrace& served);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_POLICY_FETCH_SCHEDULE_H_
