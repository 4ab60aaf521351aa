// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/planner/step_planner.h"

#include <utility>

#include "placement/planner/plan_validator.h"
#include "placement/policy/next_use_policy.h"

namespace castor {

Result<StepPlan> PlanStep(PlanPolicy policy, const Trace& trace,
                          const PlanProblem& problem) {
  StepPlan made;
  switch (policy) {
    case PlanPolicy::kAuto: {
      CASTOR_ASSIGN_OR_RETURN(made.plan, PlanNextUse(trace, problem));
      break;
    }
    case PlanPolicy::kPlanned: {
      CASTOR_ASSIGN_OR_RETURN(ExactPlan exact, PlanExact(trace, problem));
      made.plan = std::move(exact.plan);
      made.certificate = std::move(exact.certificate);
      break;
    }
  }
  CASTOR_RETURN_IF_ERROR(ValidatePlan(trace, problem, made.plan));
  return made;
}

}  // namespace castor
