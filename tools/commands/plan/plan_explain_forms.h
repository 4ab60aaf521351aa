// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_FORMS_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_FORMS_H_

// Why states are where they are, for people and for programs. Pure functions,
// thread-safe.

#include <optional>
#include <span>
#include <string>

#include "chunk/base/json_value.h"
#include "placement/tier_model.h"
#include "tools/commands/plan/plan_explain.h"

namespace castor {

// A paragraph for each chunk: those of its parameters that were asked for, a
// sentence for each state, and what a step moves of it, with times where the
// machine tells them.
std::string ExplainedText(std::span<const ExplainedChunk> explained,
                          const std::optional<TierModel>& machine);

// [{"chunk", "params", "homes": [{"state", "tier", "why"}], "step"}].
JsonValue ExplainedJson(std::span<const ExplainedChunk> explained);

// What a step moves, link by link, as documents have it.
JsonValue StepTrafficJson(const StepTraffic& traffic);

// A line for each state and each link, with fields between tabs:
//   state  CHUNK  STATE  TIER  WHY
//   moves  CHUNK  LINK  BYTES  TRANSFERS
std::string ExplainedPlain(std::span<const ExplainedChunk> explained);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_EXPLAIN_FORMS_H_
