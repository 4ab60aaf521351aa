// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_TABLES_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_TABLES_H_

// What a simulated step worked on and waited for, for people. Pure functions,
// thread-safe.

#include <cstdint>
#include <string>

#include "chunk/base/units.h"
#include "collectives/memory_plan.h"
#include "placement/fetch_forecast.h"
#include "placement/simulation_result.h"
#include "tools/cli/text_table.h"

namespace castor {

// "12.5 %"; "-" where there is no whole.
std::string ShareText(int64_t part, int64_t whole);

// That the resource moved; 0 for what moves nothing.
Bytes MovedOver(const SimulatedStep& step, SimResource resource);

// The trainer's lane waited for chunks, all causes together.
int64_t StallNs(const SimulatedStep& step);

// "2.08 s: nvme is busy for 100.00 % of it".
std::string StepSentence(const SimulatedStep& step);

// "by deadlines, at most 5 under way; 2 gathers come too late, for 12 ms of a
// step".
std::string DeadlinesSentence(const FetchForecast& fetches);

// Where deadlines were asked for and there are none: "3 ahead, not by
// deadlines: no compute time of a step is declared; give --compute".
std::string NoDeadlinesSentence(const MemoryPlan& plan);

std::string ResourceTable(const SimulatedStep& step, Emphasis emphasis);
// For what the trainer's lane waits; empty where it never does.
std::string StallTable(const SimulatedStep& step, Emphasis emphasis);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_TABLES_H_
