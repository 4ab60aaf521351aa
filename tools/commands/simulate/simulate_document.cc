// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "chunk/base/tier.h"
#include "collectives/sealing/seal_plan.h"
#include "placement/plan.h"
#include "tools/cli/text/text_forms.h"
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
  const SealBudgets& given = point.seal->budgets;
  const Bytes budgets[] = {given.device, given.host,
                           given.nvme.value_or(Bytes(0))};
  for (const Tier tier : kAllTiers) {
    const size_t t = TierIndex(tier);
    const Bytes peak = point.result->peak[t];
    const Bytes budget = budgets[t];
    const bool unused = peak == Bytes(0) && budget == Bytes(0);
    const bool limited = budget < kUnlimited;
    table.Add({TierName(tier), peak,
               limited ? Value(budget) : Value().Or("not given"),
               limited ? Value::Share(peak.count(), budget.count()) : Value(),
               point.seal->memory.home_bytes[t]},
              Mark::kNone, unused ? Form::kData : Form::kAll);
  }
  return table;
}

// "F32", "BF16 and F32".
std::string TypesOf(const ChunkLayout& layout) {
  std::vector<std::string> names;
  for (const GroupInfo& group : layout.groups()) {
    std::string name(DTypeName(group.dtype));
    if (std::ranges::count(names, name) == 0) names.push_back(std::move(name));
  }
  return JoinedWithAnd(names);
}

// What the steps move over links whose speed the machine's file does not tell.
std::vector<std::string> UnknownLinks(const SimulateReport& report) {
  const auto moved = [&](Tier from, Tier to) {
    return std::ranges::any_of(report.points, [&](const SimulatedPoint& point) {
      return point.fits() &&
             point.result->steady().traffic.on(from, to).bytes > Bytes(0);
    });
  };
  std::vector<std::string> unknown;
  const auto add = [&](bool used, const auto& speed, const char* name) {
    if (used && !speed) unknown.emplace_back(name);
  };
  using enum Tier;
  const TierModel& machine = report.machine;
  const bool down = moved(kDevice, kHost);
  add(moved(kHost, kDevice), machine.host_to_device, "host_to_device");
  add(down, machine.device_to_host, "device_to_host");
  add(moved(kNvme, kHost), machine.nvme_read, "nvme_read");
  add(moved(kHost, kNvme), machine.nvme_write, "nvme_write");
  add(report.ranks > 1, machine.all_gather, "all_gather");
  add(report.ranks > 1, machine.reduce_scatter, "reduce_scatter");
  add(down, machine.optimizer, "optimizer");
  return unknown;
}

// Steps that depart from the trace, and the trace's own behind them.
Table ThenTable(const SimulateFlags& flags, const SimulatedPoint& point) {
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
    table.Add(
        {Value::Name(i < flags.then.size() ? flags.then[i] : flags.trace_file),
         SimulatedStepJson(step), Value::Ns(step.ns()), step.traffic.gathers,
         step.prefetched_gathers, step.cancelled_gathers,
         MovedOver(step, SimResource::kToDevice),
         step.divergences > 0 ? "departs: on demand from there" : "yes"});
  }
  return table;
}

JsonValue PointJson(const SimulateFlags& flags, const SimulatedPoint& point) {
  JsonValue json = Fields({{"device_budget_bytes", point.device_budget},
                           {"host_budget_bytes", point.host_budget},
                           {"fits", point.fits()}});
  if (!point.fits()) {
    json["reason"] = point.why;
    return json;
  }
  json["step"] = SimulatedStepJson(point.result->steady());
  json["first_step"] = SimulatedStepJson(point.result->steps.front());
  json["prefetch"] = FetchForecastJson(point.fetches);
  json["then"] = ThenTable(flags, point).Json();
  json["tiers"] = TierTable(point).Json();
  return json;
}

constexpr size_t kPointColumns = 20;

// Every point, a row each: the swept budget on the page, all for --plain.
Table PointTable(const SimulateReport& report) {
  const SimulateFlags& flags = report.flags;
  const auto fastest = std::ranges::min_element(
      report.points, [](const SimulatedPoint& a, const SimulatedPoint& b) {
        if (!a.fits() || !b.fits()) return a.fits();
        return a.result->steady().ns() < b.result->steady().ns();
      });
  Table table(
      {.header = true},
      {{"device_budget_bytes"},
       {"host_budget_bytes"},
       {"", std::string(flags.sweep.empty() ? "" : flags.swept_budget())},
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
    const Bytes budget =
        flags.device_budget ? point->host_budget : point->device_budget;
    if (!point->fits()) {
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
      return step.traffic.on(from, to).bytes;
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
               step.traffic.wire_sent(),
               step.traffic.gathers,
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
  for (const int64_t each : point.seal->memory.problem.slots) slots += each;
  std::string groups;
  const ZeroOptions& options = report.options;
  if (options.shard_group > 0) {
    groups = fmt::format(" in groups of {}", options.shard_group);
  }
  if (options.optimizer_span == OptimizerSpan::kWorld) {
    groups += ", optimizer states over all";
  }
  return fmt::format(
      "stage {}, {}{}, {} parameters, policy {}, {} fetched ahead; {} for "
      "gathered chunks",
      options.stage, Plural(report.ranks, "rank"), groups,
      TypesOf(report.layout), PlanPolicyName(options.policy),
      point.fetches
          ? std::string("in time")
          : fmt::format("{}", point.seal->memory.problem.prefetch.depth),
      Plural(slots, "slot"));
}

// How many chunks are made whole, and homes read for them, of either kind.
std::string GathersText(const SimulatedStep& step) {
  const auto kinds = [](int64_t ahead, int64_t on_demand) {
    return fmt::format("{} ahead of use, {} on demand", Grouped(ahead),
                       Grouped(on_demand));
  };
  return fmt::format("{}: {}; {} read for them: {}",
                     Grouped(step.traffic.gathers),
                     kinds(step.prefetched_gathers, step.demand_gathers()),
                     Plural(step.traffic.fetches, "home"),
                     kinds(step.prefetched_fetches, step.demand_fetches()));
}

void SayPoint(const SimulateReport& report, const SimulatedPoint& point,
              Document* doc) {
  const SimulatedStep& step = point.result->steady();
  doc->Say("Engine", EngineText(report, point));
  doc->Say("Step", StepSentence(step));
  doc->Say("Gathers", GathersText(step));
  doc->Say("Prefetch", point.prefetch);
  doc->Add(ResourceTable(step), Form::kPage);
  doc->Add(StallTable(step), Form::kPage);
  doc->Add(TierTable(point), Form::kPage);
  doc->Add(ThenTable(report.flags, point), Form::kPage);
}

// What was read, and the engine that was asked for.
void AddInput(const SimulateReport& report, Document* doc) {
  const SimulateFlags& flags = report.flags;
  const TraceFile& trace = report.trace;
  const ZeroOptions& options = report.options;
  const int64_t chunks = std::ssize(trace.chunks);
  const int64_t moments = std::ssize(trace.step.accesses);
  const int64_t passes = std::ssize(report.step.evaluations);
  const int64_t compute_ns = options.step_compute_ns;
  doc->Set("trace", Fields({{"file", flags.trace_file},
                            {"chunks", chunks},
                            {"accesses", moments},
                            {"ranks", trace.world},
                            {"compute_ns", compute_ns},
                            {"evaluations", passes}}));
  doc->Say("Trace",
           fmt::format("{}: {}, {} of a step, recorded on {}",
                       Shown(flags.trace_file), Plural(chunks, "chunk"),
                       Plural(moments, "moment"), Plural(trace.world, "rank")));
  if (flags.recorded != nullptr) {
    const RecordedRun& run = *flags.recorded;
    doc->Set("recorded", Fields({{"step", run.step},
                                 {"ns", run.measured_ns},
                                 {"simulated_ns", run.simulated_ns > 0
                                                      ? Value(run.simulated_ns)
                                                      : Value()}}));
    doc->Say("Recorded",
             fmt::format("step {} took {}{}", run.step,
                         FormatDuration(run.measured_ns),
                         run.simulated_ns > 0
                             ? fmt::format("; simulated as it was, {}",
                                           FormatDuration(run.simulated_ns))
                             : std::string("; as it was it does not fit")));
  }
  doc->Set("machine", Fields({{"file", flags.files.machine},
                              {"ranks_that_share_it", flags.ranks_per_host}}));
  std::string machine = Shown(flags.files.machine);
  if (flags.ranks_per_host > 1) {
    machine += fmt::format("; {} ranks share memory, cores and drives",
                           flags.ranks_per_host);
  }
  doc->Say("Machine", machine);
  doc->Say("Computes",
           compute_ns > 0 || flags.compute_ns
               ? fmt::format("{} a step", FormatDuration(compute_ns))
               : std::string("nobody knows how long: --compute TIME"));
  const std::string types = TypesOf(report.layout);
  const bool assumed =
      flags.files.layout.empty() && !flags.dtype && !trace.chunks[0].dtype;
  doc->Set(
      "engine",
      Fields({{"stage", options.stage},
              {"ranks", report.ranks},
              {"shard_group",
               options.shard_group > 0 ? options.shard_group : report.ranks},
              {"optimizer_span", OptimizerSpanName(options.optimizer_span)},
              {"policy", PlanPolicyName(options.policy)},
              {"dtype", types},
              {"dtype_assumed", assumed},
              {"optimizer", OptimizerName(options.optimizer.kind)},
              {"prefetch", PrefetchJson(options.prefetch)},
              {"clip", options.clip_norm > 0},
              {"grad_mode", GradModeName(options.grad_mode)}}));
  if (assumed) {
    doc->Say(
        "Assumed",
        fmt::format("parameters are {}: the trace does not say; --dtype TYPE",
                    types));
  }
  if (passes > 0) {
    doc->Say("Evaluates", fmt::format("{} a step, of which no plan knows",
                                      Plural(passes, "time")));
  }
  const std::vector<std::string> unknown = UnknownLinks(report);
  doc->Set("not_known", ListOf(unknown));
  if (unknown.empty()) return;
  doc->Say("No speed", fmt::format("{}: taken to be instant, so a step is at "
                                   "least this long",
                                   JoinedWithAnd(unknown)));
}

}  // namespace

Document SimulateDocument(const SimulateReport& report) {
  const SimulateFlags& flags = report.flags;
  Document doc("castor.simulation/1");
  AddInput(report, &doc);
  doc.Set("sweep", flags.sweep.empty() ? Value() : flags.swept_budget());
  doc.Set("points", ListOf(report.points, [&](const SimulatedPoint& point) {
            return PointJson(flags, point);
          }));
  const SimulatedPoint& first = report.points.front();
  if (flags.sweep.empty()) {
    SayPoint(report, first, &doc);
    doc.Add(PointTable(report), Form::kPlain);
    return doc;
  }
  doc.Add(PointTable(report));
  if (!first.fits()) doc.Say("Too small", first.why);
  if (!flags.svg.empty()) {
    doc.Gap();
    doc.Say("Written", fmt::format("{}: the plot", Shown(flags.svg)));
  }
  return doc;
}

}  // namespace castor
