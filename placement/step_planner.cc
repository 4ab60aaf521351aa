// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/step_planner.h"

#include <utility>

#include "placement/next_use_policy.h"
#include "placement/plan_validator.h"

namespace castor {

std::vector<int64_t> LentPlacesOf(PlanPolicy policy, const StepTrace& step,
                                  const PlanProblem& problem) {
  if (policy != PlanPolicy::kPlanned || problem.lent_class == kNoSlotClass) {
    return {};
  }
  return PlacesLeft(step, problem.lent_arena, problem.lent_place);
}

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
