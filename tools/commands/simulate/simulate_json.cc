// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/simulate_json.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/simulation_result.h"

namespace castor {
namespace {

JsonValue StepJson(const SimulatedStep& step) {
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
  json["releases"] = step.releases;
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

JsonValue PointJson(const SimulatedPoint& point) {
  JsonValue json;
  json["device_budget_bytes"] = point.device_budget.count();
  json["host_budget_bytes"] = point.host_budget.count();
  json["fits"] = point.result.has_value();
  if (!point.result) {
    json["reason"] = point.why;
    return json;
  }
  json["step"] = StepJson(point.result->steady());
  json["first_step"] = StepJson(point.result->steps.front());
  json["tiers"] = JsonValue::Array();
  for (const Tier tier : kAllTiers) {
    const size_t t = TierIndex(tier);
    json["tiers"].Append(JsonValue::Object(
        {{"name", TierName(tier)},
         {"peak_bytes", point.result->peak[t].count()},
         {"budget_bytes", point.engine.budget[t].count()},
         {"home_bytes", point.engine.home_bytes[t].count()}}));
  }
  return json;
}

}  // namespace

JsonValue SimulateJson(const SimulateReport& report) {
  const SimulateRequest& request = report.request;
  JsonValue json;
  json["schema"] = "castor.simulation/1";
  json["trace"] = JsonValue::Object({{"file", request.trace_file},
                                     {"chunks", report.chunks},
                                     {"moments", report.moments},
                                     {"ranks", report.recorded_ranks},
                                     {"compute_ns", report.compute_ns}});
  json["machine"] =
      JsonValue::Object({{"file", request.machine_file},
                         {"ranks_that_share_it", report.ranks_per_machine}});
  json["engine"] = JsonValue::Object(
      {{"stage", request.stage},
       {"ranks", report.ranks},
       {"shard_group",
        request.shard_group > 0 ? request.shard_group : report.ranks},
       {"optimizer_span", OptimizerSpanName(request.optimizer_span)},
       {"policy", PlanPolicyName(request.policy)},
       {"dtype", DTypeName(request.dtype)},
       {"optimizer", OptimizerName(request.optimizer.kind)},
       {"prefetch_depth", request.prefetch_depth},
       {"clip", request.clip},
       {"grad_mode", request.fp32_grads ? "fp32" : "separate"}});
  json["not_known"] = JsonValue::Array();
  for (const std::string& link : report.unknown) {
    json["not_known"].Append(link);
  }
  json["sweep"] = request.sweep
                      ? JsonValue(SweptBudgetName(request.sweep->budget))
                      : JsonValue();
  json["points"] = JsonValue::Array();
  for (const SimulatedPoint& point : report.points) {
    json["points"].Append(PointJson(point));
  }
  return json;
}

}  // namespace castor
