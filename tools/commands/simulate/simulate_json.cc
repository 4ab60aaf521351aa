// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/simulate_json.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "chunk/base/tier.h"
#include "collectives/zero_options.h"
#include "placement/plan.h"
#include "placement/simulation_result.h"
#include "tools/commands/simulate/step_json.h"

namespace castor {
namespace {

JsonValue PointJson(const SimulateRequest& request,
                    const SimulatedPoint& point) {
  JsonValue json;
  json["device_budget_bytes"] = point.device_budget.count();
  json["host_budget_bytes"] = point.host_budget.count();
  json["fits"] = point.result.has_value();
  if (!point.result) {
    json["reason"] = point.why;
    return json;
  }
  json["step"] = SimulatedStepJson(point.result->steady());
  json["first_step"] = SimulatedStepJson(point.result->steps.front());
  json["prefetch"] = FetchForecastJson(point.fetches);
  json["then"] = JsonValue::Array();
  for (size_t i = 0; i < point.then.size(); ++i) {
    json["then"].Append(JsonValue::Object(
        {{"file",
          i < request.then.size() ? request.then[i] : request.trace_file},
         {"step", SimulatedStepJson(point.then[i])}}));
  }
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
                                     {"compute_ns", report.compute_ns},
                                     {"evaluations", report.evaluations}});
  json["machine"] =
      JsonValue::Object({{"file", request.files.machine},
                         {"ranks_that_share_it", request.ranks_per_host}});
  json["engine"] = JsonValue::Object(
      {{"stage", request.engine.stage},
       {"ranks", report.ranks},
       {"shard_group",
        report.shard_group > 0 ? report.shard_group : report.ranks},
       {"optimizer_span", OptimizerSpanName(report.optimizer_span)},
       {"policy", PlanPolicyName(request.engine.policy)},
       {"dtype", report.dtypes},
       {"dtype_assumed", report.dtype_assumed},
       {"optimizer", OptimizerName(request.engine.optimizer.kind)},
       {"prefetch", PrefetchModeName(request.engine.prefetch)},
       {"prefetch_depth", request.engine.prefetch_depth},
       {"clip", request.engine.clip_norm > 0},
       {"grad_mode", GradModeName(request.engine.grad_mode)}});
  json["not_known"] = JsonValue::Array();
  for (const std::string& link : report.unknown) {
    json["not_known"].Append(link);
  }
  json["sweep"] = request.sweep
                      ? JsonValue(SweptBudgetName(request.sweep->budget))
                      : JsonValue();
  json["points"] = JsonValue::Array();
  for (const SimulatedPoint& point : report.points) {
    json["points"].Append(PointJson(request, point));
  }
  return json;
}

}  // namespace castor
