// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/step_json.h"

#include <cstddef>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "placement/run_event.h"

namespace castor {

JsonValue SimulatedStepJson(const SimulatedStep& step) {
  JsonValue json;
  json["ns"] = step.ns();
  json["idle_ns"] = step.idle_ns();
  json["critical"] = SimResourceName(step.critical());
  json["resources"] = JsonValue::Array();
  for (int r = 0; r < kSimResources; ++r) {
    const auto resource = static_cast<SimResource>(r);
    json["resources"].Append(
        JsonValue::Object({{"name", SimResourceName(resource)},
                           {"busy_ns", step.busy(resource)}}));
  }
  json["moved"] = JsonValue::Array();
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      const Bytes bytes = step.moved[TierIndex(from)][TierIndex(to)];
      if (bytes == Bytes(0)) continue;
      json["moved"].Append(JsonValue::Object({{"from", TierName(from)},
                                              {"to", TierName(to)},
                                              {"bytes", bytes.count()}}));
    }
  }
  json["wire_sent_bytes"] = step.wire_sent.count();
  json["gathers"] = step.gathers;
  json["prefetched_gathers"] = step.prefetched_gathers;
  json["demand_gathers"] = step.demand_gathers();
  json["fetches"] = step.fetches;
  json["prefetched_fetches"] = step.prefetched_fetches;
  json["demand_fetches"] = step.demand_fetches();
  json["cancelled_gathers"] = step.cancelled_gathers;
  json["releases"] = step.releases;
  json["divergences"] = step.divergences;
  json["reduce_scatters"] = step.reduce_scatters;
  json["stalls"] = JsonValue::Array();
  for (int c = 0; c < kRunCauses; ++c) {
    const SimulatedStall& stall = step.stalls[static_cast<size_t>(c)];
    if (stall.count == 0) continue;
    json["stalls"].Append(
        JsonValue::Object({{"cause", RunCauseName(static_cast<RunCause>(c))},
                           {"count", stall.count},
                           {"ns", stall.ns}}));
  }
  return json;
}

JsonValue FetchForecastJson(const std::optional<FetchForecast>& fetches) {
  if (!fetches) return JsonValue();
  return JsonValue::Object({{"most_ahead", fetches->most_ahead},
                            {"late", fetches->late},
                            {"stall_ns", fetches->stall_ns}});
}

}  // namespace castor
