// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_H_

// Why the states of a parameter are where the plan has them, and what a step
// moves because of it: `castor explain`, and `--explain` of `castor plan`. Pure
// functions, thread-safe. Part of plan_outcome.h.

#include <string>

#include "chunk/base/json_value.h"
#include "chunk/base/status.h"
#include "collectives/step_traffic.h"
#include "tools/cli/document.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_subject.h"

namespace castor {

// Of the chunks of parameters whose names match `pattern` (chunk/base/glob.h),
// in order, a paragraph for each: those of its parameters that match, a
// sentence for each state, which has its home with what else the chunk holds,
// and what a step moves of it, with times where the machine tells them.
// "chunks" in JSON, and lines of --plain:
//   state  CHUNK  STATE  TIER  WHY
//   moves  CHUNK  LINK  BYTES  TRANSFERS
// InvalidArgument, with the nearest name, where none matches. REQUIRES: the
// plan fits.
Result<Document> ExplainHomes(const PlanSubject& subject,
                              const PlanOutcome& outcome,
                              const std::string& pattern);

// What a step moves between tiers; lines of --plain: link FROM TO BYTES MOVES.
Table LinkTable(const StepTraffic& traffic);
JsonValue StepTrafficJson(const StepTraffic& traffic);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_H_
