// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_json.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/tier_pool.h"
#include "placement/exact_policy.h"
#include "placement/plan.h"
#include "placement/plan_record.h"
#include "placement/run_event.h"
#include "tools/commands/plan/plan_explain_forms.h"
#include "tools/commands/simulate/step_json.h"
#include "tools/report/plan_statistics.h"
#include "tools/report/report_data.h"

namespace castor {
namespace {

JsonValue OrNull(const std::optional<double>& number) {
  return number ? JsonValue(*number) : JsonValue();
}

JsonValue ModelJson(const PlanSubject& subject) {
  const PlanTotals totals = TotalsOf(subject);
  return JsonValue::Object({{"name", subject.model.name},
                            {"family", subject.model.family},
                            {"source", subject.model.source},
                            {"order", ParamOrderName(subject.model.order)},
                            {"tensors", subject.model.params.size()},
                            {"elements", totals.elements},
                            {"total_bytes", totals.bytes.count()}});
}

JsonValue ConfigurationJson(const PlanOutcome& outcome) {
  const ZeroOptions& options = outcome.request.options;
  const OversizeChunks oversize = OversizeOf(outcome.layout);
  JsonValue json = JsonValue::Object(
      {{"world", outcome.request.world},
       {"stage", options.stage},
       {"shard_group",
        options.shard_group > 0 ? options.shard_group : outcome.request.world},
       {"optimizer_span", OptimizerSpanName(options.optimizer_span)},
       {"policy", PlanPolicyName(options.policy)},
       {"prefetch", PrefetchModeName(options.prefetch)},
       {"prefetch_depth", options.prefetch_depth},
       {"micro_batches", outcome.request.step.micro_batches},
       {"recompute", outcome.request.step.recompute},
       {"grad_mode", GradModeName(options.grad_mode)},
       {"accumulation_order",
        outcome.request.step.whole_grads ? "last" : "each"},
       {"chunks", outcome.layout.chunks().size()},
       {"chunk_bytes", LargestChunk(outcome.layout).count()},
       {"oversize_chunks", oversize.count},
       {"largest_oversize_bytes", oversize.largest.count()},
       {"accesses", outcome.step.accesses.size()}});
  json["activations"] =
      JsonValue::Object({{"counted", outcome.request.activations.has_value() ||
                                         !outcome.step.leases.empty()},
                         {"borrowed", outcome.request.borrows},
                         {"activations_bytes", outcome.activations.count()}});
  json["overhead_bytes"] = outcome.request.overhead.count();
  return json;
}

// Null where there is no limit, or no such tier.
JsonValue BudgetJson(const PlanOutcome& outcome, Tier tier) {
  const ZeroOptions& options = outcome.request.options;
  switch (tier) {
    case Tier::kDevice:
      if (!outcome.request.device_limited) return JsonValue();
      return options.device_budget.count();
    case Tier::kHost:
      return options.host_budget.count();
    case Tier::kNvme:
      break;
  }
  if (options.nvme.empty()) return JsonValue();
  return options.nvme[0].size->count();
}

JsonValue TierJson(const PlanOutcome& outcome, Tier tier) {
  const ByteTable& table = outcome.seal->table;
  JsonValue json;
  json["tier"] = TierName(tier);
  json["budget_bytes"] = BudgetJson(outcome, tier);
  json["planned_bytes"] =
      (tier == Tier::kDevice ? outcome.device_total() : table.total(tier))
          .count();
  json["peak_bytes"] = outcome.forecast->peak[TierIndex(tier)].count();
  for (int c = 0; c < kByteClasses; ++c) {
    const auto kind = static_cast<ByteClass>(c);
    std::string key(ByteClassName(kind));
    key += "_bytes";
    json["classes"][key] = table.at(kind, tier).count();
  }
  return json;
}

// "simulated" is null where something that the step uses is "unknown".
JsonValue TimesJson(const PlanOutcome& outcome) {
  const StepTimes& times = outcome.times;
  JsonValue json;
  json["resources"] = JsonValue::Array();
  for (const ResourceTime& time : times.resources) {
    json["resources"].Append(
        JsonValue::Object({{"name", time.name},
                           {"moved_bytes", time.bytes.count()},
                           {"seconds", OrNull(time.seconds)}}));
  }
  json["least_seconds"] = OrNull(times.least_seconds());
  json["most_seconds"] = OrNull(times.most_seconds());
  json["unknown"] = JsonValue::Array();
  for (const std::string_view name : times.unknown()) {
    json["unknown"].Append(name);
  }
  json["step_seconds"] = OrNull(outcome.step_seconds());
  json["simulated"] =
      outcome.simulated ? SimulatedStepJson(*outcome.simulated) : JsonValue();
  return json;
}

// Null where the policy prices nothing.
JsonValue SlotsJson(const PlanOutcome& outcome) {
  const std::optional<PlanCertificate>& proved =
      outcome.forecast->plan.certificate;
  if (!proved) return JsonValue();
  std::vector<Bytes> slot_bytes;
  for (const SlotClass& slots : outcome.seal->memory.device_classes) {
    slot_bytes.push_back(slots.slot_bytes);
  }
  return SlotWorthJson(
      StatisticsOfPlan(RunPlanOf(*proved, outcome.seal->memory.problem,
                                 slot_bytes, outcome.step.accesses.size())));
}

JsonValue CertificateJson(const PlanReport& report) {
  if (!report.bound) return JsonValue();
  const double cost = report.outcome.forecast->fetch_cost;
  const double bound = report.bound->lower_bound;
  return JsonValue::Object(
      {{"fetch_cost", cost},
       {"lower_bound", bound},
       {"gap", cost > bound ? (cost - bound) / bound : 0.0},
       {"optimal", report.bound->optimal},
       {"unit",
        report.outcome.seal->memory.problem.cost_unit == FetchCostUnit::kSeconds
            ? "seconds"
            : "links"},
       {"shard_slots", report.outcome.forecast->shard_slots},
       {"shards", report.outcome.forecast->shards},
       {"slots", SlotsJson(report.outcome)}});
}

// Homes by state and tier: how many chunks.
JsonValue HomesJson(const MemoryPlan& memory) {
  JsonValue json;
  for (int k = 0; k < kStateKinds; ++k) {
    int64_t chunks[3] = {0, 0, 0};
    for (const auto& states : memory.states) {
      const StatePlace& place = states[static_cast<size_t>(k)];
      if (place.bytes > Bytes(0)) ++chunks[TierIndex(place.home)];
    }
    JsonValue& of_state = json[StateKindName(static_cast<StateKind>(k))];
    for (const Tier tier : kAllTiers) {
      of_state[TierName(tier)] = chunks[TierIndex(tier)];
    }
  }
  return json;
}

JsonValue VariantsJson(const std::vector<PlanVariant>& variants) {
  JsonValue json = JsonValue::Array();
  for (const PlanVariant& variant : variants) {
    const PlanOutcome& outcome = variant.outcome;
    const ByteTable& table = outcome.seal->table;
    json.Append(JsonValue::Object(
        {{"what", variant.what},
         {"command", PlanCommandText(variant.flags)},
         {"device_bytes", outcome.device_total().count()},
         {"host_bytes", table.total(Tier::kHost).count()},
         {"nvme_bytes", table.total(Tier::kNvme).count()},
         {"moved_bytes", outcome.moved().count()},
         {"fetch_cost", outcome.forecast->fetch_cost},
         {"least_seconds", OrNull(outcome.times.least_seconds())},
         {"most_seconds", OrNull(outcome.times.most_seconds())},
         {"step_seconds", OrNull(outcome.step_seconds())}}));
  }
  return json;
}

JsonValue ComparedJson(const std::vector<ComparedBytes>& rows) {
  JsonValue json = JsonValue::Array();
  for (const ComparedBytes& row : rows) {
    json.Append(JsonValue::Object({{"what", row.what},
                                   {"planned_bytes", row.planned},
                                   {"measured_bytes", row.measured},
                                   {"difference", OrNull(row.difference())}}));
  }
  return json;
}

// "policy" is null where the run's is the plan's, or unknown.
JsonValue OtherSettingsJson(const PlanComparison& comparison) {
  JsonValue json;
  json["budgets"] = JsonValue::Array();
  for (const ComparedBytes& budget : comparison.budgets) {
    json["budgets"].Append(JsonValue::Object({{"tier", budget.what},
                                              {"planned_bytes", budget.planned},
                                              {"run_bytes", budget.measured}}));
  }
  json["policy"] = JsonValue();
  if (comparison.policy) {
    json["policy"] = JsonValue::Object(
        {{"planned", PlanPolicyName(comparison.policy->planned)},
         {"run", PlanPolicyName(comparison.policy->run)}});
  }
  return json;
}

JsonValue ComparisonJson(const PlanComparison& comparison) {
  return JsonValue::Object(
      {{"file", comparison.file},
       {"other_settings", OtherSettingsJson(comparison)},
       {"first_step", comparison.first_step},
       {"steps", comparison.steps},
       {"peaks", ComparedJson(comparison.peaks)},
       {"links", ComparedJson(comparison.links)},
       {"measured_ns", comparison.measured_ns},
       {"planned_seconds", OrNull(comparison.planned_seconds)}});
}

}  // namespace

JsonValue PlanJson(const PlanReport& report) {
  const PlanOutcome& outcome = report.outcome;
  JsonValue json;
  json["schema"] = "castor.plan-report/1";
  json["command"] = PlanCommandText(report.flags);
  json["model"] = ModelJson(report.subject);
  json["configuration"] = ConfigurationJson(outcome);
  json["fits"] = outcome.fits.ok();
  json["reason"] =
      outcome.fits.ok() ? JsonValue() : JsonValue(outcome.fits.message());
  if (outcome.seal) {
    json["tiers"] = JsonValue::Array();
    for (const Tier tier : kAllTiers) {
      json["tiers"].Append(TierJson(outcome, tier));
    }
    json["homes"] = HomesJson(outcome.seal->memory);
    json["step"] = StepTrafficJson(outcome.forecast->traffic);
    json["certificate"] = CertificateJson(report);
    json["prefetch"] = FetchForecastJson(outcome.forecast->fetches);
    if (report.subject.machine) json["times"] = TimesJson(outcome);
  }
  json["changes"] = VariantsJson(report.changes);
  json["alternatives"] = VariantsJson(report.alternatives);
  json["one_more_gib"] = VariantsJson(report.more);
  if (report.comparison)
    json["comparison"] = ComparisonJson(*report.comparison);
  if (!report.explained.empty()) {
    json["explained"] = ExplainedJson(report.explained);
  }
  if (!report.output.empty()) json["output"] = report.output;
  return json;
}

}  // namespace castor
