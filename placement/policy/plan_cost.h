// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_POLICY_PLAN_COST_H_
#define CASTOR_PLACEMENT_POLICY_PLAN_COST_H_

// What the fetches of a plan cost, step after step. Knows nothing of how plans
// are made. Pure, thread-safe. Part of plans (plan.h).

#include <vector>

#include "placement/plan.h"

namespace castor {

// By class, in the unit of fetch_cost: what is gathered in one step when every
// step before it was the same: of chunks, and of shards whose copies are kept.
// A copy that the step begins with costs nothing where it is still there, and
// still valid, when the step ends. REQUIRES: the
// plan is valid for some trace.
std::vector<double> StepFetchCosts(const PlanProblem& problem,
                                   const Plan& plan);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_POLICY_PLAN_COST_H_
