// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMPARE_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMPARE_H_

// What was planned next to what a recorded run measured: peaks of tiers, of the
// rank that used most; bytes of links in a step, of all ranks; and how long a
// step took. Pure function, thread-safe. Part of plan_outcome.h.

#include <string>

#include "chunk/base/status.h"
#include "tools/cli/document.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_subject.h"

namespace castor {

// Also what the run was told otherwise: budgets, and its policy as far as steps
// tell it. Lines of --plain: other_budget, other_policy, peak and measured.
// InvalidArgument, naming the first difference, where the run was of other
// ranks, another stage, another model or other chunks; Malformed where the file
// is no record. REQUIRES: the outcome fits.
Result<Document> CompareWithRun(const PlanSubject& subject,
                                const PlanOutcome& outcome,
                                const std::string& file);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMPARE_H_
