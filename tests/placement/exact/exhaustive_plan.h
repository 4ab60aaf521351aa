// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_PLACEMENT_EXACT_EXHAUSTIVE_PLAN_H_
#define CASTOR_TESTS_PLACEMENT_EXACT_EXHAUSTIVE_PLAN_H_

// The cheapest way to serve a trace, by trying every set of copies at every
// moment: what a planner is compared with. Knows nothing of gaps between uses
// or of flows. Pure, thread-safe.

#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {

// The least that the fetches of a step cost, when the step ends with the valid
// copies it began with, over every number of slots that hold copies of shards,
// where they may. REQUIRES: the trace is one of a step and fits; at most 16
// chunks, or 6 where shards may be kept.
double CheapestStep(const Trace& trace, const PlanProblem& problem);

}  // namespace castor

#endif  // CASTOR_TESTS_PLACEMENT_EXACT_EXHAUSTIVE_PLAN_H_
