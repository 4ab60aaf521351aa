// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "chunk/base/quote.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/base/units_text.h"
#include "chunk/param_spec.h"
#include "collectives/run_chunks.h"
#include "offload/record/record_reader.h"
#include "placement/run_event.h"
#include "tools/cli/text_forms.h"
#include "tools/report/run_times.h"

namespace castor {
namespace {

// The first step follows no plan, and the second one begins with what the
// first left.
constexpr int32_t kFirstSteadyStep = 3;

Status CheckSame(std::string_view what, int64_t planned, int64_t run) {
  if (planned == run) return OkStatus();
  return InvalidArgument(
      fmt::format("the run was of another configuration: {} {} and not {}",
                  what, run, planned));
}

// Sizes first: they tell another chunk size, and names another model. A record
// keeps the beginning of what is long.
Status CheckChunk(size_t index, const RunChunkInfo& planned,
                  const RunChunkInfo& run) {
  if (planned.bytes != run.bytes) {
    return InvalidArgument(fmt::format(
        "the run was of another model, type or chunk size: chunk {} of it has "
        "{} ({}), and of the plan {} ({})",
        index, FormatBytes(Bytes(run.bytes)), Quoted(run.params),
        FormatBytes(Bytes(planned.bytes)), Quoted(planned.params)));
  }
  if (planned.params.starts_with(run.params)) return OkStatus();
  return InvalidArgument(fmt::format(
      "the run was of another model: chunk {} of it holds {}, and of the plan "
      "{}; give the model that was trained",
      index, Quoted(run.params), Quoted(planned.params)));
}

Status CheckModel(const PlanSubject& subject, const PlanOutcome& outcome,
                  const RunRankInfo& run) {
  std::vector<std::string_view> names;
  for (const ParamSpec& spec : subject.model.params) {
    names.push_back(spec.name);
  }
  const std::vector<RunChunkInfo> planned = RunChunksOf(outcome.layout, names);
  for (size_t c = 0; c < std::min(planned.size(), run.chunks.size()); ++c) {
    CASTOR_RETURN_IF_ERROR(CheckChunk(c, planned[c], run.chunks[c]));
  }
  return CheckSame("chunks", std::ssize(planned), std::ssize(run.chunks));
}

Status CheckRun(const PlanSubject& subject, const PlanOutcome& outcome,
                const RunStatistics& statistics, const RunRecord& record) {
  if (record.ranks.empty()) return InvalidArgument("it describes no rank");
  CASTOR_RETURN_IF_ERROR(
      CheckSame("ranks", outcome.request.world, statistics.world));
  CASTOR_RETURN_IF_ERROR(
      CheckSame("stage", outcome.request.options.stage, statistics.stage));
  for (const RunRankInfo& rank : record.ranks) {
    CASTOR_RETURN_IF_ERROR(CheckModel(subject, outcome, rank));
  }
  return OkStatus();
}

// What a rank of the run was given otherwise, of the first that was.
std::vector<ComparedBytes> OtherBudgets(const PlanOutcome& outcome,
                                        const RunRecord& record) {
  std::vector<ComparedBytes> other;
  for (const Tier tier : kAllTiers) {
    const int64_t planned = outcome.engine_budget(tier).count();
    for (const RunRankInfo& rank : record.ranks) {
      const int64_t given = rank.budget_bytes[TierIndex(tier)];
      if (given == planned) continue;
      other.push_back({std::string(TierName(tier)), planned, given});
      break;
    }
  }
  return other;
}

// A plan with a proof is recorded after the first step that was whole, and the
// other policy proves nothing.
std::optional<OtherPolicy> PolicyOfRun(const PlanOutcome& outcome,
                                       const RunStatistics& run) {
  if (!run.plan && run.complete_steps < 2) return std::nullopt;
  const OtherPolicy both{outcome.request.options.policy,
                         run.plan ? PlanPolicy::kPlanned : PlanPolicy::kAuto};
  return both.planned == both.run ? std::nullopt : std::optional(both);
}

// By the name that a report gives a link.
std::vector<ComparedBytes> PlannedLinks(const PlanOutcome& outcome) {
  const StepTraffic& traffic = outcome.forecast->traffic;
  std::vector<ComparedBytes> links;
  const auto add = [&](const LinkId& link, Bytes bytes) {
    if (bytes == Bytes(0)) return;
    links.push_back({LinkName(link), bytes.count() * outcome.request.world, 0});
  };
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      add({RunEventKind::kTransfer, from, to}, traffic.on(from, to).bytes);
    }
  }
  add({RunEventKind::kGather, Tier::kDevice, Tier::kDevice},
      traffic.all_gather.bytes);
  add({RunEventKind::kReduceScatter, Tier::kDevice, Tier::kDevice},
      traffic.reduce_scatter.bytes);
  return links;
}

void AddMeasured(const std::string& what, int64_t measured,
                 std::vector<ComparedBytes>* rows) {
  const auto found =
      std::find_if(rows->begin(), rows->end(),
                   [&](const ComparedBytes& row) { return row.what == what; });
  if (found != rows->end()) {
    found->measured = measured;
  } else if (measured > 0) {
    rows->push_back({what, 0, measured});
  }
}

Table ComparedTable(std::string_view word) {
  return Table(
      {.word = std::string(word)},
      {{"what", "next to the run"},
       {"planned_bytes", "planned"},
       {"measured_bytes", "measured"},
       {"difference", "difference", Table::Align::kRight, Form::kPageAndJson}});
}

}  // namespace

std::optional<double> ComparedBytes::difference() const {
  if (planned == 0) return std::nullopt;
  return static_cast<double>(measured) / static_cast<double>(planned) - 1;
}

Result<PlanComparison> CompareWithRun(const PlanSubject& subject,
                                      const PlanOutcome& outcome,
                                      const std::string& file) {
  CASTOR_ASSIGN_OR_RETURN(const RunRecord record, ReadRecord(file));
  const RunStatistics whole = ComputeRunStatistics(record, {});
  if (Status same = CheckRun(subject, outcome, whole, record); !same.ok()) {
    return same.WithContext(QuotedPath(file));
  }
  PlanComparison comparison;
  comparison.file = file;
  comparison.budgets = OtherBudgets(outcome, record);
  comparison.policy = PolicyOfRun(outcome, whole);
  for (const Tier tier : kAllTiers) {
    const auto t = TierIndex(tier);
    ComparedBytes row{std::string(TierName(tier)),
                      outcome.forecast->peak[t].count(), 0};
    for (const TierStatistics& measured : whole.tiers) {
      if (measured.tier == tier) row.measured = measured.peak_bytes;
    }
    if (row.planned > 0 || row.measured > 0) comparison.peaks.push_back(row);
  }
  StatisticsOptions options;
  if (LastStep(record) >= kFirstSteadyStep) {
    options.steps.first = kFirstSteadyStep;
  }
  const RunStatistics steady = ComputeRunStatistics(record, options);
  comparison.first_step = options.steps.first;
  comparison.steps = steady.complete_steps;
  comparison.links = PlannedLinks(outcome);
  for (size_t i = 0; i < steady.links.size(); ++i) {
    AddMeasured(LinkName(steady.links[i].link), steady.link_bytes[i].median,
                &comparison.links);
  }
  comparison.measured_ns = steady.step_ns.median;
  comparison.planned_seconds = outcome.step_seconds();
  return comparison;
}

void AddComparison(const PlanComparison& run, Document* doc) {
  std::vector<std::string> settings;
  Table budgets({.word = "other_budget"},
                {{"tier"}, {"planned_bytes"}, {"run_bytes"}});
  for (const ComparedBytes& budget : run.budgets) {
    budgets.Add({budget.what, budget.planned, budget.measured});
    settings.push_back(fmt::format(
        "{} for {} where {} is planned", FormatSize(Bytes(budget.measured)),
        budget.what, FormatSize(Bytes(budget.planned))));
  }
  JsonValue policy;
  JsonValue other = Fields({{"budgets", budgets.Json()}});
  doc->Add(std::move(budgets), Form::kPlain);
  if (run.policy) {
    const std::string_view planned = PlanPolicyName(run.policy->planned);
    const std::string_view followed = PlanPolicyName(run.policy->run);
    policy = Fields({{"planned", planned}, {"run", followed}});
    doc->Line({"other_policy", planned, followed});
    settings.push_back(
        fmt::format("policy {} in place of {}", followed, planned));
  }
  other["policy"] = policy;
  if (!settings.empty()) {
    doc->Gap();
    doc->Say("Not alike",
             fmt::format("the run had {}: numbers differ for that reason too",
                         JoinedWithAnd(settings)));
  }
  Table all = ComparedTable("");
  const auto rows = [&](std::string_view word, std::string_view prefix,
                        const std::vector<ComparedBytes>& compared) {
    Table table = ComparedTable(word);
    for (const ComparedBytes& row : compared) {
      for (Table* to : {&table, &all}) {
        to->Add({Value(row.what).As(fmt::format("{}{}", prefix, row.what)),
                 Bytes(row.planned), Bytes(row.measured),
                 Value::Change(row.difference())});
      }
    }
    doc->Add(table, Form::kPlain);
    return table.Json();
  };
  const JsonValue peaks = rows("peak", "peak, ", run.peaks);
  const JsonValue links = rows("measured", "", run.links);
  const bool timed = run.planned_seconds && run.measured_ns > 0;
  all.Add({"a step", Value::Seconds(run.planned_seconds).Or("unknown"),
           Value::Ns(run.measured_ns),
           timed ? Value::Change(static_cast<double>(run.measured_ns) / 1e9 /
                                     *run.planned_seconds -
                                 1)
                 : Value()});
  doc->Add(std::move(all), Form::kPage);
  doc->Say(
      "Compared",
      fmt::format("{}: bytes of all ranks in a step, median of {} from "
                  "step {} on",
                  Shown(run.file), Plural(run.steps, "step"), run.first_step));
  doc->Set("comparison", Fields({{"file", run.file},
                                 {"other_settings", other},
                                 {"first_step", run.first_step},
                                 {"steps", run.steps},
                                 {"peaks", peaks},
                                 {"links", links},
                                 {"measured_ns", run.measured_ns},
                                 {"planned_seconds", run.planned_seconds}}));
}

}  // namespace castor
