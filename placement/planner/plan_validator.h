// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_PLANNER_PLAN_VALIDATOR_H_
#define CASTOR_PLACEMENT_PLANNER_PLAN_VALIDATOR_H_

// Proves a plan by replaying it: no class ever holds more copies and open
// gradients than it has slots, nor more copies of shards than their slots have
// places, every move is legal where it stands, every access finds its chunk,
// every gather from a shard's copy finds it, every use and gradient ends with
// the step, and none of what the update makes stale is kept past it. Knows
// nothing of how plans are made. Pure, thread-safe. Part of plans (plan.h).

#include "chunk/base/status.h"
#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {

// Ok, or Internal naming the first moment, move and rule that do not hold.
Status ValidatePlan(const Trace& trace, const PlanProblem& problem,
                    const Plan& plan);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_PLANNER_PLAN_VALIDATOR_H_
