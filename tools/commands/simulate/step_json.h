// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_JSON_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_JSON_H_

// A simulated step as documents have it. Pure function, thread-safe.

#include "chunk/base/json_value.h"
#include "placement/simulation_result.h"

namespace castor {

// {"ns", "idle_ns", "critical", "resources": [{"name", "busy_ns"}], "moved":
// [{"from", "to", "bytes"}], "wire_sent_bytes", counts, "stalls": [{"cause",
// "count", "ns"}]}.
JsonValue SimulatedStepJson(const SimulatedStep& step);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_JSON_H_
