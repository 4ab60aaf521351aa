// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_PLANNER_PLAN_RECORD_H_
#define CASTOR_PLACEMENT_PLANNER_PLAN_RECORD_H_

// A plan's proof as the record of a run keeps it: for the engine that records,
// and for whoever foretells what it would. Pure function, thread-safe. Part of
// the step planner (step_planner.h).

#include <cstddef>
#include <span>

#include "chunk/base/units.h"
#include "placement/exact/exact_policy.h"
#include "placement/plan.h"
#include "placement/run_event.h"

namespace castor {

// Of a step of `moments` moments, with slots of these sizes, by class; rank and
// step are the caller's to say.
RunPlanInfo RunPlanOf(const PlanCertificate& certificate,
                      const PlanProblem& problem,
                      std::span<const Bytes> slot_bytes, size_t moments);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_PLANNER_PLAN_RECORD_H_
