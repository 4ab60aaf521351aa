// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/step_tables.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/tier.h"
#include "placement/run_event.h"
#include "tools/cli/duration_text.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"

namespace castor {
namespace {

using Align = TextTable::Align;

bool HasBytes(SimResource resource) {
  return resource != SimResource::kCompute && resource != SimResource::kHost &&
         resource != SimResource::kDevice;
}

}  // namespace

std::string ShareText(int64_t part, int64_t whole) {
  return whole == 0
             ? std::string("-")
             : Percent(static_cast<double>(part) / static_cast<double>(whole));
}

Bytes MovedOver(const SimulatedStep& step, SimResource resource) {
  const size_t device = TierIndex(Tier::kDevice);
  const size_t host = TierIndex(Tier::kHost);
  const size_t nvme = TierIndex(Tier::kNvme);
  switch (resource) {
    case SimResource::kToDevice:
      return step.moved[host][device];
    case SimResource::kFromDevice:
      return step.moved[device][host];
    case SimResource::kNvme:
      return step.moved[nvme][host] + step.moved[host][nvme];
    case SimResource::kCollectives:
      return step.wire_sent;
    case SimResource::kCompute:
    case SimResource::kHost:
    case SimResource::kDevice:
      break;
  }
  return Bytes(0);
}

int64_t StallNs(const SimulatedStep& step) {
  int64_t ns = 0;
  for (const SimulatedStall& stall : step.stalls) ns += stall.ns;
  return ns;
}

std::string StepSentence(const SimulatedStep& step) {
  const SimResource critical = step.critical();
  return fmt::format("{}: {} is busy for {} of it", FormatDuration(step.ns()),
                     SimResourceName(critical),
                     ShareText(step.busy(critical), step.ns()));
}

std::string DeadlinesSentence(const FetchForecast& fetches) {
  std::string text = fmt::format("by deadlines, at most {} under way; ",
                                 Grouped(fetches.most_ahead));
  if (fetches.late == 0) return text + "every gather is there in time";
  return text + fmt::format("{} come{} too late, for {} of a step",
                            Plural(fetches.late, "gather"),
                            fetches.late == 1 ? "s" : "",
                            FormatDuration(fetches.stall_ns));
}

std::string NoDeadlinesSentence(const MemoryPlan& plan) {
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
                     plan.problem.prefetch_depth, LackedByDeadlines(plan),
                     JoinedWithAnd(next));
}

std::string ResourceTable(const SimulatedStep& step, Emphasis emphasis) {
  TextTable table(
      {{"resource", Align::kLeft}, {"busy"}, {"of the step"}, {"bytes"}});
  for (int r = 0; r < kSimResources; ++r) {
    const auto resource = static_cast<SimResource>(r);
    const Bytes moved = MovedOver(step, resource);
    const int64_t busy = step.busy(resource);
    if (busy == 0 && moved == Bytes(0) && r > 0) continue;
    table.AddRow({std::string(SimResourceName(resource)), FormatDuration(busy),
                  ShareText(busy, step.ns()),
                  HasBytes(resource) ? FormatSize(moved) : std::string()},
                 resource == step.critical() ? TextTable::Mark::kChosen
                                             : TextTable::Mark::kNone);
  }
  return table.Render(emphasis);
}

std::string StallTable(const SimulatedStep& step, Emphasis emphasis) {
  TextTable table({{"the trainer waits for", Align::kLeft},
                   {"time"},
                   {"of the step"},
                   {"count"}});
  bool any = false;
  const auto add = [&](std::string what, int64_t ns, std::string count) {
    any = true;
    table.AddRow({std::move(what), FormatDuration(ns), ShareText(ns, step.ns()),
                  std::move(count)});
  };
  const std::pair<RunCause, std::string_view> causes[] = {
      {RunCause::kDemand, "chunks fetched when asked for"},
      {RunCause::kPrefetch, "chunks fetched ahead, too late"},
      {RunCause::kOptimizer, "parameters still being updated"},
      {RunCause::kGradient, "a slot for gradients"}};
  for (const auto& [cause, what] : causes) {
    const SimulatedStall& stall = step.stalls[static_cast<size_t>(cause)];
    if (stall.ns > 0) add(std::string(what), stall.ns, Grouped(stall.count));
  }
  if (step.idle_ns() > 0) {
    add("the end of the step before", step.idle_ns(), "1");
  }
  return any ? table.Render(emphasis) : std::string();
}

}  // namespace castor
