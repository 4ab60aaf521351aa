// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_RUN_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_RUN_H_

// From what `castor plan` was asked for to its report: reads the model and
// what else is named, plans, and writes the plan for trainers. Owner thread
// only.

#include "chunk/base/status.h"
#include "tools/cli/console.h"
#include "tools/commands/plan/plan_flags.h"
#include "tools/commands/plan/plan_report.h"

namespace castor {

// Progress and notes go to `console.err`, nothing to `console.out`. A report
// that says no is a report; the plan's file is written only where it fits.
Result<PlanReport> RunPlan(const PlanFlags& flags, const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_RUN_H_
