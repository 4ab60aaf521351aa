// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_PLANNER_STEP_PLANNER_H_
#define CASTOR_PLACEMENT_PLANNER_STEP_PLANNER_H_

// The plan for a step by the policy asked for, proved before anybody follows
// it. A run and whoever foretells one ask here, and so plan alike. Pure
// function, thread-safe.

#include <optional>

#include "chunk/base/status.h"
#include "placement/exact/exact_policy.h"
#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {

struct StepPlan {
  Plan plan;
  // What the plan costs and how good that is proved to be; none where the
  // policy proves nothing.
  std::optional<PlanCertificate> certificate;
};

// Fails as the policies do (PlanNextUse, PlanExact), and with Internal where
// their plan does not pass ValidatePlan.
Result<StepPlan> PlanStep(PlanPolicy policy, const Trace& trace,
                          const PlanProblem& problem);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_PLANNER_STEP_PLANNER_H_
