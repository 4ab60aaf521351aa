// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_H_

// Why the states of a parameter are where the plan has them, and what a step
// moves because of it: `castor explain`, and `--explain` of `castor plan`. Pure
// functions, thread-safe. Part of plan_outcome.h.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/json_value.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "collectives/step_traffic.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "tools/cli/document.h"
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

// A paragraph for each chunk: those of its parameters that were asked for, a
// sentence for each state, and what a step moves of it, with times where the
// machine tells them. "chunks" in JSON, and lines of --plain:
//   state  CHUNK  STATE  TIER  WHY
//   moves  CHUNK  LINK  BYTES  TRANSFERS
void AddExplained(std::span<const ExplainedChunk> explained,
                  const std::optional<TierModel>& machine, Document* doc);

// What a step moves between tiers; lines of --plain: link FROM TO BYTES MOVES.
Table LinkTable(const StepTraffic& traffic);
JsonValue StepTrafficJson(const StepTraffic& traffic);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_H_
