// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "chunk/base/tier.h"
#include "chunk/param_spec.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "collectives/sealing/run_chunks.h"
#include "offload/record/record_reader.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/report/statistics/run_statistics.h"
#include "tools/report/statistics/run_times.h"

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
// keeps the first names where all are too long; one of an older Castor may cut
// the last of those.
Status CheckChunk(size_t index, const RunChunkInfo& planned,
                  const RunChunkInfo& run) {
  if (planned.bytes != run.bytes) {
    return InvalidArgument(fmt::format(
        "the run was of another model, type or chunk size: chunk {} of it has "
        "{} ({}), and of the plan {} ({})",
        index, FormatBytes(Bytes(run.bytes)), Quoted(FewNames(run.params)),
        FormatBytes(Bytes(planned.bytes)), Quoted(FewNames(planned.params))));
  }
  const std::vector<std::string_view> names = ListedNames(run.params);
  const std::string listed = fmt::format("{}", fmt::join(names, ","));
  if (planned.params.starts_with(listed)) return OkStatus();
  return InvalidArgument(fmt::format(
      "the run was of another model: chunk {} of it holds {}, and of the plan "
      "{}; give the model that was trained",
      index, Quoted(FewNames(run.params)), Quoted(FewNames(planned.params))));
}

Status CheckRun(const PlanSubject& subject, const PlanOutcome& outcome,
                const RunStatistics& statistics, const RunRecord& record) {
  if (record.ranks.empty()) return InvalidArgument("it describes no rank");
  CASTOR_RETURN_IF_ERROR(
      CheckSame("ranks", outcome.request.flags.world, statistics.world));
  CASTOR_RETURN_IF_ERROR(
      CheckSame("stage", outcome.request.options.stage, statistics.stage));
  std::vector<std::string_view> names;
  for (const ParamSpec& spec : subject.model.params) {
    names.push_back(spec.name);
  }
  const std::vector<RunChunkInfo> planned = RunChunksOf(outcome.layout, names);
  for (const RunRankInfo& rank : record.ranks) {
    const std::vector<RunChunkInfo>& run = rank.chunks;
    for (size_t c = 0; c < std::min(planned.size(), run.size()); ++c) {
      CASTOR_RETURN_IF_ERROR(CheckChunk(c, planned[c], run[c]));
    }
    CASTOR_RETURN_IF_ERROR(
        CheckSame("chunks", std::ssize(planned), std::ssize(run)));
  }
  return OkStatus();
}

struct Compared {
  std::string what;  // "host -> device", "all-gather"
  int64_t planned = 0;
  int64_t measured = 0;
};

// By the name that a report gives a link.
std::vector<Compared> Links(const PlanOutcome& outcome,
                            const RunStatistics& run) {
  const StepTraffic& traffic = outcome.traffic();
  std::vector<Compared> links;
  const auto planned = [&](const LinkId& link, Bytes bytes) {
    if (bytes == Bytes(0)) return;
    links.push_back(
        {LinkName(link), bytes.count() * outcome.request.flags.world, 0});
  };
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      planned({RunEventKind::kTransfer, from, to}, traffic.on(from, to).bytes);
    }
  }
  planned({RunEventKind::kGather}, traffic.all_gather.bytes);
  planned({RunEventKind::kReduceScatter}, traffic.reduce_scatter.bytes);
  for (size_t i = 0; i < run.links.size(); ++i) {
    const std::string name = LinkName(run.links[i].link);
    const int64_t measured = run.link_bytes[i].median;
    const auto found =
        std::find_if(links.begin(), links.end(),
                     [&](const Compared& row) { return row.what == name; });
    if (found != links.end()) {
      found->measured = measured;
    } else if (measured > 0) {
      links.push_back({name, 0, measured});
    }
  }
  return links;
}

Table ComparedTable(std::string_view word) {
  return Table({.word = std::string(word)},
               {{"what", "next to the run"},
                {"planned_bytes", "planned"},
                {"measured_bytes", "measured"},
                Table::NotPlain("difference", "difference")});
}

// Of the run over the plan, less one; nothing where nothing was planned.
Value Difference(double planned, double measured) {
  return planned == 0 ? Value() : Value::Change(measured / planned - 1);
}

// Says that numbers differ for another reason, too.
JsonValue AddOtherSettings(const PlanOutcome& outcome, const RunRecord& record,
                           const RunStatistics& run, Document* doc) {
  std::vector<std::string> settings;
  Table budgets({.word = "other_budget"},
                {{"tier"}, {"planned_bytes"}, {"run_bytes"}});
  // What a rank of the run was given otherwise, of the first that was; 0 where
  // it had none.
  for (const Tier tier : kAllTiers) {
    const Bytes planned = outcome.engine_budget(tier);
    for (const RunRankInfo& rank : record.ranks) {
      const Bytes given(rank.budget_bytes[TierIndex(tier)]);
      if (given == planned) continue;
      budgets.Add({TierName(tier), planned, given});
      settings.push_back(fmt::format("{} for {} where {} is planned",
                                     FormatSize(given), TierName(tier),
                                     FormatSize(planned)));
      break;
    }
  }
  JsonValue policy;
  JsonValue other = Fields({{"budgets", budgets.Json()}});
  doc->Add(std::move(budgets), Form::kPlain);
  // A plan with a proof is recorded after the first step that was whole, and
  // the other policy proves nothing.
  const PlanPolicy planned = outcome.request.options.policy;
  const PlanPolicy followed =
      run.plan ? PlanPolicy::kPlanned : PlanPolicy::kAuto;
  if ((run.plan || run.complete_steps >= 2) && planned != followed) {
    const std::string_view names[] = {PlanPolicyName(planned),
                                      PlanPolicyName(followed)};
    policy = Fields({{"planned", names[0]}, {"run", names[1]}});
    doc->Line({"other_policy", names[0], names[1]});
    settings.push_back(
        fmt::format("policy {} in place of {}", names[1], names[0]));
  }
  other["policy"] = policy;
  if (settings.empty()) return other;
  doc->Gap();
  doc->Say("Not alike",
           fmt::format("the run had {}: numbers differ for that reason too",
                       JoinedWithAnd(settings)));
  return other;
}

}  // namespace

Result<Document> CompareWithRun(const PlanSubject& subject,
                                const PlanOutcome& outcome,
                                const std::string& file, Status* completeness) {
  CASTOR_ASSIGN_OR_RETURN(const RunRecord record, ReadRecord(file));
  *completeness = record.completeness;
  const RunStatistics whole = ComputeRunStatistics(record, {});
  if (!record.completeness.ok() && whole.complete_steps == 0) {
    return record.completeness.WithContext(
        fmt::format("{} holds no whole step to compare", QuotedPath(file)));
  }
  if (Status same = CheckRun(subject, outcome, whole, record); !same.ok()) {
    return same.WithContext(QuotedPath(file));
  }
  StepRange steps;
  if (LastStep(record) >= kFirstSteadyStep) steps.first = kFirstSteadyStep;
  RunStatistics steady = ComputeRunStatistics(record, steps);
  if (!record.completeness.ok() && steady.complete_steps == 0) {
    steps = {};
    steady = whole;
  }
  Document doc;
  doc.Set("file", file);
  doc.Set("other_settings", AddOtherSettings(outcome, record, whole, &doc));
  doc.Set("first_step", steps.first);
  doc.Set("steps", steady.complete_steps);
  Table all = ComparedTable("");
  Table peaks = ComparedTable("peak");
  Table links = ComparedTable("measured");
  const auto add = [&](Table* table, const Value& what, int64_t planned,
                       int64_t measured) {
    const Value difference =
        Difference(static_cast<double>(planned), static_cast<double>(measured));
    for (Table* to : {table, &all}) {
      to->Add({what, Bytes(planned), Bytes(measured), difference});
    }
  };
  for (const Tier tier : kAllTiers) {
    const int64_t planned = outcome.run->peak[TierIndex(tier)].count();
    int64_t measured = 0;
    for (const TierStatistics& of : whole.tiers) {
      if (of.tier == tier) measured = of.peak_bytes;
    }
    if (planned == 0 && measured == 0) continue;
    const std::string_view name = TierName(tier);
    add(&peaks, Value(name).As(fmt::format("peak, {}", name)), planned,
        measured);
  }
  for (const Compared& link : Links(outcome, steady)) {
    add(&links, link.what, link.planned, link.measured);
  }
  doc.Set("peaks", peaks.Json());
  doc.Add(std::move(peaks), Form::kPlain);
  doc.Set("links", links.Json());
  doc.Add(std::move(links), Form::kPlain);
  const int64_t measured_ns = steady.step_ns.median;
  const std::optional<double> planned = outcome.step_seconds();
  doc.Set("measured_ns", measured_ns);
  doc.Set("planned_seconds", planned);
  all.Add(
      {"a step", Value::Seconds(planned).Or("unknown"), Value::Ns(measured_ns),
       measured_ns == 0 ? Value()
                        : Difference(planned.value_or(0),
                                     static_cast<double>(measured_ns) / 1e9)});
  doc.Add(std::move(all), Form::kPage);
  doc.Say("Compared",
          fmt::format("{}: bytes of all ranks in a step, median of {} from "
                      "step {} on",
                      Shown(file), Plural(steady.complete_steps, "step"),
                      steps.first));
  return doc;
}

}  // namespace castor
