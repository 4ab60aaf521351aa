// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_JSON_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_JSON_H_

// What `castor simulate --json` prints: castor.simulation/1. Pure function,
// thread-safe.

#include "chunk/base/json_value.h"
#include "tools/commands/simulate/simulate_run.h"

namespace castor {

// {"schema", "trace", "machine", "engine", "not_known", "points": [{
// "device_budget_bytes", "host_budget_bytes", "fits", "reason" or "step",
// "first_step", "then": [{"file", "step"}], "tiers"}], "sweep"}; sweep is null,
// or names the budget.
JsonValue SimulateJson(const SimulateReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_JSON_H_
