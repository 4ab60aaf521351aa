// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_JSON_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_JSON_H_

// A simulated step, and what a plan foresees of one, as documents have them.
// Pure functions, thread-safe.

#include <optional>

#include "chunk/base/json_value.h"
#include "placement/fetch_forecast.h"
#include "placement/simulation_result.h"

namespace castor {

// {"ns", "idle_ns", "critical", "resources": [{"name", "busy_ns"}], "moved":
// [{"from", "to", "bytes"}], "wire_sent_bytes", counts, "stalls": [{"cause",
// "count", "ns"}]}.
JsonValue SimulatedStepJson(const SimulatedStep& step);

// {"most_ahead", "late", "stall_ns"}, or null.
JsonValue FetchForecastJson(const std::optional<FetchForecast>& fetches);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_STEP_JSON_H_
