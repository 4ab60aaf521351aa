// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_DOCUMENT_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_DOCUMENT_H_

// A simulated step and the forecast of its fetches, as all commands that
// simulate show them. Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <string>

#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "collectives/dry/simulation_result.h"
#include "collectives/memory/memory_plan.h"
#include "placement/plan.h"
#include "placement/policy/fetch_forecast.h"
#include "tools/cli/text/document.h"

namespace castor {

// That the resource moved; nothing for what moves nothing.
std::optional<Bytes> MovedOver(const SimulatedStep& step, SimResource resource);

// The trainer's lane waited for chunks, all causes together.
int64_t StallNs(const SimulatedStep& step);

// "2.08 s: nvme is busy for 100.00 % of it".
std::string StepSentence(const SimulatedStep& step);

// Where deadlines were asked for. "by deadlines, at most 5 under way; 2 gathers
// come too late, for 12 ms of a step", or "3 ahead, not by deadlines: no
// compute time of a step is declared; give --compute".
std::string DeadlinesSentence(const std::optional<FetchForecast>& fetches,
                              const MemoryPlan& plan);

// How long each resource is busy, on a page those that are.
Table ResourceTable(const SimulatedStep& step);
// For what the trainer's lane waits; lines of --plain: stall CAUSE NS COUNT.
Table StallTable(const SimulatedStep& step);

JsonValue SimulatedStepJson(const SimulatedStep& step);

// Null where deadlines were not asked for, or times are unknown.
JsonValue FetchForecastJson(const std::optional<FetchForecast>& fetches);

// As a config has it: a number, or "deadlines".
JsonValue PrefetchJson(const Prefetch& prefetch);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_DOCUMENT_H_
