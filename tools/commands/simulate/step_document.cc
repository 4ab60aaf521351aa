// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/step_document.h"

#include <fmt/format.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "chunk/base/tier.h"
#include "placement/run_event.h"
#include "tools/cli/text/text_forms.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
std::optional<Bytes> MovedOver(const SimulatedStep& step,
                               SimResource resource) {
  using enum Tier;
  const StepTraffic& traffic = step.traffic;
  switch (resource) {
    case SimResource::kToDevice:
      return traffic.on(kHost, kDevice).bytes;
    case SimResource::kFromDevice:
      return traffic.on(kDevice, kHost).bytes;
    case SimResource::kNvme:
      return traffic.on(kNvme, kHost).bytes + traffic.on(kHost, kNvme).bytes;
    case SimResource::kCollectives:
      return traffic.wire_sent();
    case SimResource::kCompute:
    case SimResource::kHost:
    case SimResource::kDevice:
      break;
  }
  return std::nullopt;
}

int64_t StallNs(const SimulatedStep& step) {
  int64_t ns = 0;
  for (const StallSum& stall : step.stalls) ns += stall.ns;
  return ns;
}

std::string StepSentence(const SimulatedStep& step) {
  const SimResource critical = step.critical();
  return fmt::format("{}: {} is busy for {} of it", FormatDuration(step.ns()),
                     SimResourceName(critical),
                     Value::Share(step.busy(critical), step.ns()).Page());
}

std::string DeadlinesSentence(const std::optional<FetchForecast>& fetches,
                              const MemoryPlan& plan) {
  if (fetches) {
    std::string text = fmt::format("by deadlines, at most {} under way; ",
                                   Grouped(fetches->most_ahead));
    if (fetches->late == 0) return text + "every gather is there in time";
    return text + fmt::format("{} come{} too late, for {} of a step",
                              Plural(fetches->late, "gather"),
                              fetches->late == 1 ? "s" : "",
                              FormatDuration(fetches->stall_ns));
  }
  std::vector<std::string> next;
  std::vector<std::string> flags;
  if (!plan.unknown_links.empty()) {
    next.push_back(
        fmt::format("measure {} with castor probe", plan.unknown_links));
  } else if (plan.problem.fetch_ns.empty()) {
    flags.emplace_back("--machine");
  }
  if (plan.problem.step_compute_ns == 0) flags.emplace_back("--compute");
  if (!flags.empty()) next.push_back("give " + JoinedWithAnd(flags));
  return fmt::format("{} ahead, not by deadlines: {}; {}",
                     plan.problem.prefetch.depth, LackedByDeadlines(plan),
                     JoinedWithAnd(next));
}

Table ResourceTable(const SimulatedStep& step) {
  Table table({}, {{"name", "resource"},
                   {"busy_ns", "busy"},
                   {"", "of the step"},
                   {"", "bytes", Table::Align::kRight}});
  for (int r = 0; r < kSimResources; ++r) {
    const auto resource = static_cast<SimResource>(r);
    const std::optional<Bytes> moved = MovedOver(step, resource);
    const int64_t busy = step.busy(resource);
    const bool used = busy > 0 || moved.value_or(Bytes(0)) > Bytes(0) ||
                      resource == SimResource::kCompute;
    table.Add(
        {SimResourceName(resource), Value::Ns(busy),
         Value::Share(busy, step.ns()), Value(moved).Or("")},
        resource == step.critical() ? Table::Mark::kChosen : Table::Mark::kNone,
        used ? Form::kAll : Form::kData);
  }
  return table;
}

Table StallTable(const SimulatedStep& step) {
  Table table({.word = "stall"},
              {{"cause", "the trainer waits for"},
               Table::JsonOnly("count"),
               {"ns", "time"},
               {"", "of the step"},
               {"count", "count", Table::Align::kAuto, Form::kPageAndPlain}});
  const auto add = [&](Value what, int64_t ns, int64_t count, Form forms) {
    table.Add({std::move(what), count, Value::Ns(ns),
               Value::Share(ns, step.ns()), count},
              Table::Mark::kNone, forms);
  };
  for (int c = 0; c < kRunCauses; ++c) {
    const auto cause = static_cast<RunCause>(c);
    const StallSum& stall = step.stalls[static_cast<size_t>(c)];
    if (stall.count == 0) continue;
    add(Value(RunCauseName(cause)).As(std::string(WaitTitle(cause))), stall.ns,
        stall.count, stall.ns > 0 ? Form::kAll : Form::kData);
  }
  if (step.idle_ns() > 0) {
    add("the end of the step before", step.idle_ns(), 1, Form::kPage);
  }
  return table;
}

JsonValue SimulatedStepJson(const SimulatedStep& step) {
  Table moved({}, {{"from"}, {"to"}, {"bytes"}});
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      const Bytes bytes = step.traffic.on(from, to).bytes;
      if (bytes > Bytes(0)) moved.Add({TierName(from), TierName(to), bytes});
    }
  }
  return Fields({{"ns", step.ns()},
                 {"idle_ns", step.idle_ns()},
                 {"critical", SimResourceName(step.critical())},
                 {"resources", ResourceTable(step).Json()},
                 {"moved", moved.Json()},
                 {"wire_sent_bytes", step.traffic.wire_sent()},
                 {"gathers", step.traffic.gathers},
                 {"prefetched_gathers", step.prefetched_gathers},
                 {"demand_gathers", step.demand_gathers()},
                 {"fetches", step.traffic.fetches},
                 {"prefetched_fetches", step.prefetched_fetches},
                 {"demand_fetches", step.demand_fetches()},
                 {"cancelled_gathers", step.cancelled_gathers},
                 {"releases", step.releases},
                 {"divergences", step.divergences},
                 {"reduce_scatters", step.reduce_scatters},
                 {"stalls", StallTable(step).Json()}});
}

JsonValue FetchForecastJson(const std::optional<FetchForecast>& fetches) {
  if (!fetches) return JsonValue();
  return Fields({{"most_ahead", fetches->most_ahead},
                 {"late", fetches->late},
                 {"stall_ns", fetches->stall_ns}});
}

JsonValue PrefetchJson(const Prefetch& prefetch) {
  if (prefetch.mode == PrefetchMode::kDepth) return prefetch.depth;
  return std::string(kPrefetchByDeadlines);
}

}  // namespace castor
