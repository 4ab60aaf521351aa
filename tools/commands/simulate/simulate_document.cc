// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/tier.h"
#include "collectives/zero_options.h"
#include "placement/plan.h"
#include "placement/simulation_result.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/simulate/simulate_command.h"
#include "tools/commands/simulate/step_document.h"

namespace castor {
namespace {

using Mark = Table::Mark;

Table TierTable(const SimulatedPoint& point) {
  Table table({}, {{"name", "tier"},
                   {"peak_bytes", "peak"},
                   {"budget_bytes", "budget"},
                   {"", "full"},
                   {"home_bytes", "of it homes"}});
  for (const Tier tier : kAllTiers) {
    const size_t t = TierIndex(tier);
    const Bytes peak = point.result->peak[t];
    const Bytes budget = point.engine.budget[t];
    const bool unused = peak == Bytes(0) && budget == Bytes(0);
    table.Add({TierName(tier), peak, budget,
               Value::Share(peak.count(), budget.count()),
               point.engine.home_bytes[t]},
              Mark::kNone, unused ? Form::kData : Form::kAll);
  }
  return table;
}

// Steps that depart from the trace, and the trace's own behind them.
Table ThenTable(const SimulateRequest& request, const SimulatedPoint& point) {
  Table table({}, {{"file", "then"},
                   Table::JsonOnly("step"),
                   {"", "step"},
                   {"", "gathers"},
                   {"", "ahead"},
                   {"", "taken back"},
                   {"", "to device"},
                   {"", "planned"}});
  for (size_t i = 0; i < point.then.size(); ++i) {
    const SimulatedStep& step = point.then[i];
    table.Add({Value::Name(i < request.then.size() ? request.then[i]
                                                   : request.trace_file),
               SimulatedStepJson(step), Value::Ns(step.ns()), step.gathers,
               step.prefetched_gathers, step.cancelled_gathers,
               MovedOver(step, SimResource::kToDevice),
               step.divergences > 0 ? "departs: on demand from there" : "yes"});
  }
  return table;
}

JsonValue PointJson(const SimulateRequest& request,
                    const SimulatedPoint& point) {
  JsonValue json = Fields({{"device_budget_bytes", point.device_budget},
                           {"host_budget_bytes", point.host_budget},
                           {"fits", point.result.has_value()}});
  if (!point.result) {
    json["reason"] = point.why;
    return json;
  }
  json["step"] = SimulatedStepJson(point.result->steady());
  json["first_step"] = SimulatedStepJson(point.result->steps.front());
  json["prefetch"] = FetchForecastJson(point.fetches);
  json["then"] = ThenTable(request, point).Json();
  json["tiers"] = TierTable(point).Json();
  return json;
}

constexpr size_t kPointColumns = 20;

// Every point, a row each: the swept budget on the page, all for --plain.
Table PointTable(const SimulateReport& report) {
  const auto& sweep = report.request.sweep;
  const auto fastest = std::min_element(
      report.points.begin(), report.points.end(),
      [](const SimulatedPoint& a, const SimulatedPoint& b) {
        if (!a.result || !b.result) return a.result.has_value();
        return a.result->steady().ns() < b.result->steady().ns();
      });
  Table table({.header = true},
              {{"device_budget_bytes"},
               {"host_budget_bytes"},
               {"", std::string(sweep ? SweptBudgetName(sweep->budget) : "")},
               {"fits"},
               {"step_ns", "step"},
               {"compute_ns", "computes"},
               {"stall_ns", "waits"},
               {"idle_ns"},
               {"critical", "busiest"},
               {"", "busy"},
               {"to_device_bytes", "to device"},
               {"from_device_bytes"},
               {"nvme_read_bytes"},
               {"nvme_write_bytes"},
               {"", "nvme"},
               {"wire_bytes"},
               {"gathers", "gathers"},
               {"device_peak_bytes"},
               {"host_peak_bytes"},
               {"nvme_peak_bytes"}});
  for (auto point = report.points.begin(); point != report.points.end();
       ++point) {
    const Bytes budget = sweep && sweep->budget == SweptBudget::kDevice
                             ? point->device_budget
                             : point->host_budget;
    if (!point->result) {
      std::vector<Value> row = {point->device_budget, point->host_budget,
                                budget, false, Value("").As("does not fit")};
      row.resize(kPointColumns, "");
      table.Add(std::move(row));
      continue;
    }
    const SimulatedStep& step = point->result->steady();
    const SimResource critical = step.critical();
    const int64_t computes = step.busy(SimResource::kCompute);
    const auto moved = [&](Tier from, Tier to) {
      return step.moved[TierIndex(from)][TierIndex(to)];
    };
    const auto& peak = point->result->peak;
    table.Add({point->device_budget,
               point->host_budget,
               budget,
               true,
               Value::Ns(step.ns()),
               Value(computes).As(Value::Share(computes, step.ns()).Page()),
               Value::Ns(StallNs(step)),
               step.idle_ns(),
               SimResourceName(critical),
               Value::Share(step.busy(critical), step.ns()),
               moved(Tier::kHost, Tier::kDevice),
               moved(Tier::kDevice, Tier::kHost),
               moved(Tier::kNvme, Tier::kHost),
               moved(Tier::kHost, Tier::kNvme),
               MovedOver(step, SimResource::kNvme),
               step.wire_sent,
               step.gathers,
               peak[0],
               peak[1],
               peak[2]},
              point == fastest ? Mark::kChosen : Mark::kNone);
  }
  return table;
}

std::string EngineText(const SimulateReport& report,
                       const SimulatedPoint& point) {
  int64_t slots = 0;
  for (const int64_t each : point.engine.problem.slots) slots += each;
  std::string groups;
  if (report.shard_group > 0) {
    groups = fmt::format(" in groups of {}", report.shard_group);
  }
  if (report.optimizer_span == OptimizerSpan::kWorld) {
    groups += ", optimizer states over all";
  }
  return fmt::format(
      "stage {}, {}{}, {} parameters, policy {}, {} fetched ahead; {} for "
      "gathered chunks",
      report.request.engine.stage, Plural(report.ranks, "rank"), groups,
      report.dtypes, PlanPolicyName(report.request.engine.policy),
      point.fetches ? std::string("in time")
                    : fmt::format("{}", point.engine.problem.prefetch_depth),
      Plural(slots, "slot"));
}

// How many chunks are made whole, and homes read for them, of either kind.
std::string GathersText(const SimulatedStep& step) {
  const auto kinds = [](int64_t ahead, int64_t on_demand) {
    return fmt::format("{} ahead of use, {} on demand", Grouped(ahead),
                       Grouped(on_demand));
  };
  return fmt::format("{}: {}; {} read for them: {}", Grouped(step.gathers),
                     kinds(step.prefetched_gathers, step.demand_gathers()),
                     Plural(step.fetches, "home"),
                     kinds(step.prefetched_fetches, step.demand_fetches()));
}

void SayPoint(const SimulateReport& report, const SimulatedPoint& point,
              Document* doc) {
  const SimulatedStep& step = point.result->steady();
  doc->Say("Engine", EngineText(report, point));
  doc->Say("Step", StepSentence(step));
  doc->Say("Gathers", GathersText(step));
  doc->Say("Prefetch",
           point.fetches ? DeadlinesSentence(*point.fetches) : point.lacked);
  doc->Add(ResourceTable(step), Form::kPage);
  doc->Add(StallTable(step), Form::kPage);
  doc->Add(TierTable(point), Form::kPage);
  doc->Add(ThenTable(report.request, point), Form::kPage);
}

void SayInput(const SimulateReport& report, Document* doc) {
  const SimulateRequest& request = report.request;
  doc->Say("Trace", fmt::format("{}: {}, {} of a step, recorded on {}",
                                Shown(request.trace_file),
                                Plural(report.chunks, "chunk"),
                                Plural(report.moments, "moment"),
                                Plural(report.recorded_ranks, "rank")));
  std::string machine = Shown(request.files.machine);
  if (request.ranks_per_host > 1) {
    machine += fmt::format("; {} ranks share memory, cores and drives",
                           request.ranks_per_host);
  }
  doc->Say("Machine", machine);
  doc->Say("Computes",
           report.compute_ns > 0 || request.compute_ns
               ? fmt::format("{} a step", FormatDuration(report.compute_ns))
               : std::string("nobody knows how long: --compute TIME"));
  if (report.dtype_assumed) {
    doc->Say(
        "Assumed",
        fmt::format("parameters are {}: the trace does not say; --dtype TYPE",
                    report.dtypes));
  }
  if (report.evaluations > 0) {
    doc->Say("Evaluates", fmt::format("{} a step, of which no plan knows",
                                      Plural(report.evaluations, "time")));
  }
  if (!report.unknown.empty()) {
    doc->Say(
        "No speed",
        fmt::format("{}: taken to be instant, so a step is at least this long",
                    JoinedWithAnd(report.unknown)));
  }
}

}  // namespace

Document SimulateDocument(const SimulateReport& report) {
  const SimulateRequest& request = report.request;
  Document doc("castor.simulation/1");
  doc.Set("trace", Fields({{"file", request.trace_file},
                           {"chunks", report.chunks},
                           {"moments", report.moments},
                           {"ranks", report.recorded_ranks},
                           {"compute_ns", report.compute_ns},
                           {"evaluations", report.evaluations}}));
  doc.Set("machine", Fields({{"file", request.files.machine},
                             {"ranks_that_share_it", request.ranks_per_host}}));
  doc.Set("engine",
          Fields({{"stage", request.engine.stage},
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
                  {"grad_mode", GradModeName(request.engine.grad_mode)}}));
  doc.Set("not_known", ListOf(report.unknown));
  doc.Set("sweep", request.sweep ? Value(SweptBudgetName(request.sweep->budget))
                                 : Value());
  doc.Set("points", ListOf(report.points, [&](const SimulatedPoint& point) {
            return PointJson(request, point);
          }));
  SayInput(report, &doc);
  const SimulatedPoint& first = report.points.front();
  if (!request.sweep) {
    SayPoint(report, first, &doc);
    doc.Add(PointTable(report), Form::kPlain);
    return doc;
  }
  doc.Add(PointTable(report));
  if (!first.result) doc.Say("Too small", first.why);
  if (!request.svg.empty()) {
    doc.Gap();
    doc.Say("Written", fmt::format("{}: the plot", Shown(request.svg)));
  }
  return doc;
}

}  // namespace castor
