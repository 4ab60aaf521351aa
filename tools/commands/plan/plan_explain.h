// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_H_

// Why the states of a parameter are where the plan has them, and what a step
// moves because of it: `castor explain`, and `--explain` of `castor plan`. Pure
// function, thread-safe.

#include <string>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "collectives/step_traffic.h"
#include "placement/run_event.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_subject.h"

namespace castor {

struct ExplainedHome {
  StateKind state = StateKind::kParam;
  Tier tier = Tier::kDevice;
  std::string why;  // a sentence
};

// States have homes by chunk, and share them with what else a chunk holds.
struct ExplainedChunk {
  ChunkId chunk;
  std::vector<std::string> params;   // those of its names that match
  std::vector<ExplainedHome> homes;  // of the states that it has
  StepTraffic traffic;               // of this chunk, in a step
};

// The chunks of parameters whose names match `pattern` (chunk/base/glob.h), in
// order. InvalidArgument, with the nearest name, where none does. REQUIRES: the
// plan fits.
Result<std::vector<ExplainedChunk>> ExplainHomes(const PlanSubject& subject,
                                                 const PlanOutcome& outcome,
                                                 const std::string& pattern);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_H_
