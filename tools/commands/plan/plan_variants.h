// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_VARIANTS_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_VARIANTS_H_

// Other configurations than the one that was asked for, each a change of flags
// that was planned like it: the smallest that fit where it does not, others to
// choose from, and what one more GiB would buy. Pure functions, thread-safe.
// Part of plan_outcome.h.

#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "tools/commands/plan/plan_flags.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_subject.h"

namespace castor {

struct PlanVariant {
  std::string what;  // "raise the device budget by 1.5 GiB", "stage 2"
  PlanFlags flags;
  PlanOutcome outcome;
};

// Changes of one flag that fit, each the least of its kind and none of them a
// guess: every one was planned. Empty where none helps. REQUIRES: `outcome` is
// of these flags and does not fit.
Result<std::vector<PlanVariant>> ChangesThatFit(const PlanSubject& subject,
                                                const PlanFlags& flags,
                                                const PlanOutcome& outcome);

// Other stages, chunk sizes, policies, no homes on the device, and activations
// computed again: those that fit, the best first. That is the shortest step,
// simulated; where a step's time is not known, the fewest bytes moved, behind
// those whose is.
Result<std::vector<PlanVariant>> Alternatives(const PlanSubject& subject,
                                              const PlanFlags& flags,
                                              const PlanOutcome& outcome);

// The same with one GiB more on the device, and on the host.
// Nothing where no device budget was given: then all is there already.
Result<std::vector<PlanVariant>> OneMoreGiB(const PlanSubject& subject,
                                            const PlanFlags& flags,
                                            const PlanOutcome& outcome);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_VARIANTS_H_
