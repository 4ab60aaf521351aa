// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/simulate_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chunk/base/tier.h"
#include "placement/plan.h"
#include "placement/simulation_result.h"
#include "tools/cli/duration_text.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/simulate/step_tables.h"

namespace castor {
namespace {

using Align = TextTable::Align;

std::string TierTable(const SimulatedPoint& point, Emphasis emphasis) {
  TextTable table({{"tier", Align::kLeft},
                   {"peak"},
                   {"budget"},
                   {"full"},
                   {"of it homes"}});
  for (const Tier tier : kAllTiers) {
    const size_t t = TierIndex(tier);
    const Bytes peak = point.result->peak[t];
    const Bytes budget = point.engine.budget[t];
    if (peak == Bytes(0) && budget == Bytes(0)) continue;
    table.AddRow({std::string(TierName(tier)), FormatSize(peak),
                  FormatSize(budget), ShareText(peak.count(), budget.count()),
                  FormatSize(point.engine.home_bytes[t])});
  }
  return table.Render(emphasis);
}

std::string EngineText(const SimulateReport& report,
                       const SimulatedPoint& point) {
  int64_t slots = 0;
  for (const int64_t each : point.engine.problem.slots) slots += each;
  const SimulateRequest& request = report.request;
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
      request.engine.stage, Plural(report.ranks, "rank"), groups, report.dtypes,
      PlanPolicyName(report.request.engine.policy),
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

// Steps that depart from the trace, and the trace's own behind them.
std::string ThenTable(const SimulateRequest& request,
                      const SimulatedPoint& point, Emphasis emphasis) {
  TextTable table({{"then", Align::kLeft},
                   {"step"},
                   {"gathers"},
                   {"ahead"},
                   {"taken back"},
                   {"to device"},
                   {"planned", Align::kLeft}});
  for (size_t i = 0; i < point.then.size(); ++i) {
    const SimulatedStep& step = point.then[i];
    table.AddRow(
        {Shown(i < request.then.size() ? request.then[i] : request.trace_file),
         FormatDuration(step.ns()), Grouped(step.gathers),
         Grouped(step.prefetched_gathers), Grouped(step.cancelled_gathers),
         FormatSize(MovedOver(step, SimResource::kToDevice)),
         step.divergences > 0 ? "departs: on demand from there" : "yes"});
  }
  return table.Render(emphasis);
}

std::string PointText(const SimulateReport& report, const SimulatedPoint& point,
                      Emphasis emphasis) {
  const SimulatedStep& step = point.result->steady();
  std::string text = Paragraph("Engine", EngineText(report, point));
  text += Paragraph("Step", StepSentence(step));
  text += Paragraph("Gathers", GathersText(step));
  if (point.fetches) {
    text += Paragraph("Prefetch", DeadlinesSentence(*point.fetches));
  } else if (!point.lacked.empty()) {
    text += Paragraph("Prefetch", point.lacked);
  }
  text += "\n" + ResourceTable(step, emphasis);
  const std::string stalls = StallTable(step, emphasis);
  if (!stalls.empty()) text += "\n" + stalls;
  text += "\n" + TierTable(point, emphasis);
  if (!point.then.empty()) {
    text += "\n" + ThenTable(report.request, point, emphasis);
  }
  return text;
}

std::string SweepText(const SimulateReport& report, Emphasis emphasis) {
  TextTable table({{std::string(SweptBudgetName(report.request.sweep->budget))},
                   {"step"},
                   {"computes"},
                   {"waits"},
                   {"busiest", Align::kLeft},
                   {"busy"},
                   {"to device"},
                   {"nvme"},
                   {"gathers"}});
  const auto fastest = std::min_element(
      report.points.begin(), report.points.end(),
      [](const SimulatedPoint& a, const SimulatedPoint& b) {
        if (!a.result || !b.result) return a.result.has_value();
        return a.result->steady().ns() < b.result->steady().ns();
      });
  for (auto point = report.points.begin(); point != report.points.end();
       ++point) {
    const Bytes budget = report.request.sweep->budget == SweptBudget::kDevice
                             ? point->device_budget
                             : point->host_budget;
    if (!point->result) {
      table.AddRow(
          {FormatSize(budget), "does not fit", "", "", "", "", "", "", ""});
      continue;
    }
    const SimulatedStep& step = point->result->steady();
    const SimResource critical = step.critical();
    table.AddRow(
        {FormatSize(budget), FormatDuration(step.ns()),
         ShareText(step.busy(SimResource::kCompute), step.ns()),
         FormatDuration(StallNs(step)), std::string(SimResourceName(critical)),
         ShareText(step.busy(critical), step.ns()),
         FormatSize(MovedOver(step, SimResource::kToDevice)),
         FormatSize(MovedOver(step, SimResource::kNvme)),
         Grouped(step.gathers)},
        point == fastest ? TextTable::Mark::kChosen : TextTable::Mark::kNone);
  }
  return table.Render(emphasis);
}

}  // namespace

std::string SimulateText(const SimulateReport& report, Emphasis emphasis) {
  const SimulateRequest& request = report.request;
  std::string text =
      Paragraph("Trace", fmt::format("{}: {}, {} of a step, recorded on {}",
                                     Shown(request.trace_file),
                                     Plural(report.chunks, "chunk"),
                                     Plural(report.moments, "moment"),
                                     Plural(report.recorded_ranks, "rank")));
  text += Paragraph(
      "Machine",
      request.ranks_per_host == 1
          ? Shown(request.files.machine)
          : fmt::format("{}; {} ranks share memory, cores and drives",
                        Shown(request.files.machine), request.ranks_per_host));
  text += Paragraph(
      "Computes",
      report.compute_ns > 0 || request.compute_ns
          ? fmt::format("{} a step", FormatDuration(report.compute_ns))
          : std::string("nobody knows how long: --compute TIME"));
  if (report.dtype_assumed) {
    text += Paragraph(
        "Assumed",
        fmt::format("parameters are {}: the trace does not say; --dtype TYPE",
                    report.dtypes));
  }
  if (report.evaluations > 0) {
    text +=
        Paragraph("Evaluates", fmt::format("{} a step, of which no plan knows",
                                           Plural(report.evaluations, "time")));
  }
  if (!report.unknown.empty()) {
    text += Paragraph(
        "No speed",
        fmt::format("{}: taken to be instant, so a step is at least this long",
                    JoinedWithAnd(report.unknown)));
  }
  if (!request.sweep) {
    return text + PointText(report, report.points.front(), emphasis);
  }
  text += "\n" + SweepText(report, emphasis);
  const SimulatedPoint& first = report.points.front();
  if (!first.result) text += "\n" + Paragraph("Too small", first.why);
  if (!request.svg.empty()) {
    text += "\n" + Paragraph("Written",
                             fmt::format("{}: the plot", Shown(request.svg)));
  }
  return text;
}

std::string SimulatePlain(const SimulateReport& report) {
  std::string text =
      "#device_budget_bytes\thost_budget_bytes\tfits\tstep_ns\tcompute_ns\t"
      "stall_ns\tidle_ns\tcritical\tto_device_bytes\tfrom_device_bytes\t"
      "nvme_read_bytes\tnvme_write_bytes\twire_bytes\tgathers\t"
      "device_peak_bytes\thost_peak_bytes\tnvme_peak_bytes\n";
  for (const SimulatedPoint& point : report.points) {
    text += fmt::format("{}\t{}\t{}", point.device_budget.count(),
                        point.host_budget.count(), point.result ? "yes" : "no");
    if (!point.result) {
      text += "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\n";
      continue;
    }
    const SimulatedStep& step = point.result->steady();
    const auto moved = [&](Tier from, Tier to) {
      return step.moved[TierIndex(from)][TierIndex(to)].count();
    };
    text += fmt::format(
        "\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", step.ns(),
        step.busy(SimResource::kCompute), StallNs(step), step.idle_ns(),
        SimResourceName(step.critical()), moved(Tier::kHost, Tier::kDevice),
        moved(Tier::kDevice, Tier::kHost), moved(Tier::kNvme, Tier::kHost),
        moved(Tier::kHost, Tier::kNvme), step.wire_sent.count(), step.gathers,
        point.result->peak[0].count(), point.result->peak[1].count(),
        point.result->peak[2].count());
  }
  return text;
}

}  // namespace castor
