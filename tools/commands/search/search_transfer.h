// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_TRANSFER_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_TRANSFER_H_

// What the transfers of a training step would take with each choice of chunk
// sizes, on a machine whose links are known (placement/step_cost.h). Pure
// functions, thread-safe.

#include <optional>
#include <string>

#include "chunk/base/json_value.h"
#include "chunk/search_result.h"
#include "placement/step_cost.h"
#include "placement/tier_model.h"
#include "tools/commands/search/search_report.h"

namespace castor {

StepCost TransferCost(const TierModel& machine, const GroupSearchResult& group,
                      const ChunkSizeCandidate& candidate, int world);

// Of the links whose speed is known the slowest, all working at the same time.
// Empty where none is known.
std::optional<double> KnownSeconds(const StepCost& cost);

// "1.23 s", "45.6 ms", with three digits that count.
std::string SecondsText(double seconds);

// A key for each link and for all of them, overlapped and one after the other;
// null where a speed is unknown.
JsonValue TransferJson(const StepCost& cost);

// The links that were used and those that would be but have no speed.
std::string MachineText(const TierModel& machine, int world);

JsonValue MachineJson(const TierModel& machine);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_TRANSFER_H_
