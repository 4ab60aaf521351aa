// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_RUN_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_RUN_H_

// From what `castor plan` was asked for to its report: reads the model and
// what else is named, plans, and writes the plan for trainers. Owner thread
// only. Part of castor plan (plan_command.h).

#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "tools/cli/console.h"
#include "tools/commands/plan/plan_compare.h"
#include "tools/commands/plan/plan_explain.h"
#include "tools/commands/plan/plan_flags.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_subject.h"
#include "tools/commands/plan/plan_variants.h"

namespace castor {

// What is known of how good the plan's fetches are, in the unit of its costs:
// links that a chunk crosses on its way into a gathered slot.
struct PlanBound {
  double lower_bound = 0;  // no plan costs less
  bool optimal = false;    // the plan is proved best
};

struct PlanReport {
  PlanFlags flags;
  PlanSubject subject;
  PlanOutcome outcome;
  std::optional<PlanBound> bound;         // where it fits
  std::vector<PlanVariant> changes;       // where it does not fit
  std::vector<PlanVariant> alternatives;  // where it does
  std::vector<PlanVariant> more;
  std::optional<PlanComparison> comparison;
  std::vector<ExplainedChunk> explained;  // where it fits, if asked for
  std::string output;  // the file that the plan was written to, if any
};

// Progress and notes go to `console.err`, nothing to `console.out`. A report
// that says no is a report; the plan's file is written only where it fits.
Result<PlanReport> RunPlan(const PlanFlags& flags, const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_RUN_H_
