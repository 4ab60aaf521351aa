// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_text.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <vector>

#include "placement/plan.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/plan/plan_explain_forms.h"
#include "tools/commands/plan/plan_tables.h"
#include "tools/commands/simulate/step_tables.h"

namespace castor {
namespace {

std::string ModelLine(const PlanSubject& subject) {
  const PlanTotals totals = TotalsOf(subject);
  return Paragraph(
      "Model",
      fmt::format("{}: {}{}, {}, {}", Shown(subject.model.name),
                  subject.model.family.empty() ? std::string()
                                               : subject.model.family + ", ",
                  Plural(std::ssize(subject.model.params), "tensor"),
                  Plural(totals.elements, "parameter"),
                  FormatSize(totals.bytes)));
}

std::string ChunkLine(const PlanReport& report) {
  const ChunkLayout& layout = report.outcome.layout;
  const OversizeChunks oversize = OversizeOf(layout);
  return Paragraph(
      "Chunks",
      fmt::format(
          "{} of up to {}{}, {} wasted; {} order{}",
          Grouped(std::ssize(layout.chunks()) - oversize.count),
          FormatSize(LargestChunk(layout)),
          oversize.count == 0 ? std::string()
                              : fmt::format(" and {} oversize, up to {}",
                                            Grouped(oversize.count),
                                            FormatSize(oversize.largest)),
          FormatSize(layout.allocated_bytes() - layout.payload_bytes()),
          ParamOrderName(report.subject.model.order),
          report.flags.files.layout.empty()
              ? std::string()
              : fmt::format(", as {} says", Shown(report.flags.files.layout))));
}

std::string StepLine(const PlanReport& report) {
  const PlanOutcome& outcome = report.outcome;
  const PlanRequest& request = outcome.request;
  std::string text;
  if (report.subject.trace) {
    text = fmt::format("as recorded in {}", Shown(report.flags.trace));
  } else {
    const int64_t batches = request.step.micro_batches;
    text = fmt::format("derived from the model: {} micro-batch{}{}",
                       Grouped(batches), batches == 1 ? "" : "es",
                       request.step.recompute ? ", layers computed again" : "");
    if (request.step.whole_grads) text += ", gradients reduced once";
    if (request.activations) {
      text += fmt::format(", {} of {}",
                          Plural(request.activations->batch, "sequence"),
                          Plural(request.activations->seq, "token"));
    }
  }
  std::string ranks = fmt::format("{}, ZeRO stage {}", Grouped(request.world),
                                  request.options.stage);
  if (request.options.shard_group > 0) {
    ranks += fmt::format(", shards in groups of {}",
                         Grouped(request.options.shard_group));
  }
  if (request.options.optimizer_span == OptimizerSpan::kWorld) {
    ranks += ", optimizer states across them";
  }
  return Paragraph("Ranks", ranks) +
         Paragraph("Step", fmt::format("{}; {}", text,
                                       Plural(std::ssize(outcome.step.accesses),
                                              "moment")));
}

// A cost in the unit in which fetches are weighed.
std::string CostText(const PlanOutcome& outcome, double cost) {
  if (outcome.seal->memory.problem.cost_unit == FetchCostUnit::kSeconds) {
    return SecondsShown(cost);
  }
  return fmt::format("{:.0f} links", cost);
}

// What the numbers leave out, so that nobody takes them for more.
std::string LeftOutLine(const PlanReport& report) {
  std::string text;
  const auto add = [&text](std::string_view words) {
    if (!text.empty()) text += "; ";
    text += words;
  };
  if (!report.outcome.request.activations && !report.subject.trace) {
    add("activations: give --seq, or --trace");
  }
  if (report.outcome.request.overhead == Bytes(0)) {
    add("what a CUDA context and NCCL hold: give --cuda-context, --nccl");
  }
  if (!report.subject.machine) {
    add("times: give --machine");
  } else if (report.outcome.step.compute_ns.empty()) {
    add("how long a rank computes: give --compute");
  }
  return text.empty() ? text : Paragraph("Left out", text);
}

// A step's time and what it waits for, or else within which bounds it lies, as
// far as that is known.
std::string TimeLines(const PlanOutcome& outcome, Emphasis emphasis) {
  const std::optional<double> least = outcome.times.least_seconds();
  const std::optional<double> most = outcome.times.most_seconds();
  if (!outcome.simulated) {
    std::vector<std::string> unknown;
    for (const std::string_view name : outcome.times.unknown()) {
      unknown.emplace_back(name);
    }
    return Paragraph(
        "Time", fmt::format("unknown: the machine file has no {}, which a step "
                            "uses; what it has is in the table above",
                            JoinedWithAnd(unknown)));
  }
  std::string text = Paragraph(
      "Time",
      fmt::format("a step takes {}; {} if all overlapped, {} if nothing did",
                  StepSentence(*outcome.simulated),
                  SecondsShown(least.value_or(0)),
                  SecondsShown(most.value_or(0))));
  const std::string stalls = StallTable(*outcome.simulated, emphasis);
  if (!stalls.empty()) text += "\n" + stalls + "\n";
  return text;
}

std::string PrefetchSentence(const PlanOutcome& outcome) {
  if (outcome.forecast->fetches) {
    return DeadlinesSentence(*outcome.forecast->fetches);
  }
  return NoDeadlinesSentence(outcome.seal->memory);
}

std::string FitLines(const PlanReport& report, Emphasis emphasis) {
  const PlanOutcome& outcome = report.outcome;
  std::string text = ByteTableText(outcome, emphasis) + "\n";
  text += StepTableText(outcome, emphasis) + "\n";
  text += Paragraph("Fits", "yes: no tier holds more than its budget");
  const double cost = outcome.forecast->fetch_cost;
  const double bound = report.bound->lower_bound;
  text += Paragraph(
      "Copies",
      fmt::format("{}: {} a step for {}; no plan takes less than {} ({})",
                  PlanPolicyName(outcome.request.options.policy),
                  Plural(outcome.forecast->traffic.gathers, "gather"),
                  CostText(outcome, cost), CostText(outcome, bound),
                  cost <= bound ? std::string("proved best")
                                : fmt::format("gap {}", Percent((cost - bound) /
                                                                bound))));
  if (outcome.request.options.prefetch == PrefetchMode::kDeadlines) {
    text += Paragraph("Prefetch", PrefetchSentence(outcome));
  }
  const StepTraffic& traffic = outcome.forecast->traffic;
  const int64_t spared = traffic.gathers - traffic.fetches;
  const int64_t slots = outcome.forecast->shard_slots;
  const int64_t lent = spared > 0 ? outcome.forecast->lent_places : 0;
  if (slots > 0 || lent > 0) {
    const std::string in_slots = fmt::format(
        "{} hold{} copies of up to {} shards", Plural(slots, "gathered slot"),
        slots == 1 ? "s" : "", outcome.forecast->shards);
    const std::string in_lent = fmt::format(
        "leases leave room for copies of up to {}",
        slots > 0 ? fmt::format("{} more", lent) : Plural(lent, "shard"));
    text +=
        Paragraph("Shards", fmt::format("{}{}{}, which spare {} of the fetches",
                                        slots > 0 ? in_slots : "",
                                        slots > 0 && lent > 0 ? ", " : "",
                                        lent > 0 ? in_lent : "", spared));
  }
  if (report.subject.machine) text += TimeLines(outcome, emphasis);
  return text;
}

std::string Commands(const std::vector<PlanVariant>& variants) {
  std::string text;
  for (const PlanVariant& variant : variants) {
    text += fmt::format("  # {}\n  {}\n", variant.what,
                        PlanCommandText(variant.flags));
  }
  return text;
}

std::string NoFitLines(const PlanReport& report, Emphasis emphasis) {
  std::string text =
      Paragraph("Fits", fmt::format("no: {}", report.outcome.fits.message()));
  if (report.changes.empty()) {
    return text + Paragraph("Changes", "no single change that was tried fits");
  }
  text += "\nAny one of these changes fits, and was planned to be sure:\n\n";
  text += VariantTableText(report.outcome, report.changes, emphasis) + "\n";
  return text + Commands(report.changes);
}

std::string OtherLines(const PlanReport& report, Emphasis emphasis) {
  std::string text;
  if (!report.more.empty() || !report.alternatives.empty()) {
    std::vector<PlanVariant> all = report.alternatives;
    all.insert(all.end(), report.more.begin(), report.more.end());
    text += "\n" + VariantTableText(report.outcome, all, emphasis);
  }
  if (report.comparison) {
    const PlanComparison& run = *report.comparison;
    const std::string other = OtherSettingsText(run);
    if (!other.empty()) text += "\n" + other;
    text += "\n" + ComparisonText(run, emphasis);
    text += Paragraph("Compared",
                      fmt::format("{}: bytes of all ranks in a step, median of "
                                  "{} from step {} on",
                                  Shown(run.file), Plural(run.steps, "step"),
                                  run.first_step));
  }
  return text;
}

std::string NextLine(const PlanReport& report) {
  if (!report.output.empty()) {
    return Paragraph("Written", fmt::format("{}: for a trainer to load",
                                            Shown(report.output)));
  }
  return fmt::format("{:<12}{} -o plan.json\n", "Next",
                     PlanCommandText(report.flags));
}

}  // namespace

std::string PlanText(const PlanReport& report, Emphasis emphasis) {
  std::string text =
      ModelLine(report.subject) + StepLine(report) + ChunkLine(report) + "\n";
  if (!report.outcome.fits.ok()) {
    return text + NoFitLines(report, emphasis) + LeftOutLine(report);
  }
  return text + FitLines(report, emphasis) + LeftOutLine(report) +
         OtherLines(report, emphasis) +
         ExplainedText(report.explained, report.subject.machine) +
         NextLine(report);
}

}  // namespace castor
