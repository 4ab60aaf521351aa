// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "collectives/answers/plan_file.h"
#include "placement/plan.h"
#include "tools/cli/atomic_file.h"
#include "tools/cli/output_paths.h"
#include "tools/cli/progress.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/registry.h"
#include "tools/commands/simulate/step_document.h"
#include "tools/report/page/page.h"

namespace castor {
namespace {

// A plan of so many takes some seconds, and a dozen configurations are tried.
constexpr int64_t kMostAccessesTried = 500'000;
// A page has a hundred.
constexpr int64_t kMostAccessesDrawn = 20'000;

using Mark = Table::Mark;

void AddModel(const PlanReport& report, Document* doc) {
  const ModelList& model = report.subject.model;
  doc->Set("model", Fields({{"name", model.name},
                            {"family", model.family},
                            {"source", model.source},
                            {"order", ParamOrderName(model.order)},
                            {"tensors", model.params.size()},
                            {"elements", report.subject.elements},
                            {"total_bytes", report.subject.bytes}}));
  doc->Say(
      "Model",
      fmt::format("{}: {}{}, {}, {}{}", Shown(model.name),
                  model.family.empty() ? "" : model.family + ", ",
                  Plural(std::ssize(model.params), "tensor"),
                  Plural(report.subject.elements.count(), "parameter"),
                  FormatSize(report.subject.bytes),
                  model.library.empty() ? "" : "; told by " + model.library));
}

std::string RanksText(const PlanRequest& request) {
  std::string text = fmt::format(
      "{}, ZeRO stage {}", Grouped(request.flags.world), request.options.stage);
  if (request.options.shard_group > 0) {
    text += fmt::format(", shards in groups of {}",
                        Grouped(request.options.shard_group));
  }
  if (request.options.optimizer_span == OptimizerSpan::kWorld) {
    text += ", optimizer states across them";
  }
  return text;
}

std::string StepText(const PlanReport& report) {
  const PlanRequest& request = report.outcome.request;
  const StepSource source = report.subject.step_source();
  if (source == StepSource::kRecorded) {
    return fmt::format("as recorded in {}", Shown(report.flags().trace));
  }
  const int64_t batches = request.step.micro_batches;
  std::string text =
      fmt::format("{}: {} micro-batch{}{}",
                  source == StepSource::kListed ? "as the list says"
                                                : "derived from the model",
                  Grouped(batches), batches == 1 ? "" : "es",
                  request.step.recompute ? ", layers computed again" : "");
  if (request.step.whole_grads) text += ", gradients reduced once";
  if (request.flags.update_in_backward) text += ", updates in the backward";
  if (request.options.guess_updates) text += ", updates guessed";
  if (request.activations) {
    text += fmt::format(", {} of {}",
                        Plural(request.activations->batch, "sequence"),
                        Plural(request.activations->seq, "token"));
  }
  return text;
}

void AddConfiguration(const PlanReport& report, Document* doc) {
  const PlanOutcome& outcome = report.outcome;
  const PlanRequest& request = outcome.request;
  const ZeroOptions& options = request.options;
  const ChunkLayout& layout = outcome.layout;
  // Chunks with a parameter that is larger than chunks are.
  int64_t oversize = 0;
  Bytes largest_oversize;
  for (const ChunkInfo& chunk : layout.chunks()) {
    if (!chunk.oversize) continue;
    ++oversize;
    largest_oversize = std::max(
        largest_oversize,
        BytesOf(chunk.size,
                layout.groups()[static_cast<size_t>(chunk.group)].dtype));
  }
  doc->Set(
      "configuration",
      Fields(
          {{"world", request.flags.world},
           {"stage", options.stage},
           {"shard_group", options.shard_group > 0 ? options.shard_group
                                                   : request.flags.world},
           {"optimizer_span", OptimizerSpanName(options.optimizer_span)},
           {"policy", PlanPolicyName(options.policy)},
           {"prefetch", PrefetchJson(options.prefetch)},
           {"step_source", StepSourceName(report.subject.step_source())},
           {"micro_batches", request.step.micro_batches},
           {"recompute", request.step.recompute},
           {"update_in_backward", request.flags.update_in_backward},
           {"guess_updates", options.guess_updates},
           {"grad_mode", GradModeName(options.grad_mode)},
           {"accumulation_order", request.step.whole_grads ? "last" : "each"},
           {"chunks", layout.chunks().size()},
           {"chunk_bytes", outcome.largest_chunk()},
           {"oversize_chunks", oversize},
           {"largest_oversize_bytes", largest_oversize},
           {"accesses", outcome.step.accesses.size()},
           {"activations",
            Fields({{"counted", request.activations.has_value() ||
                                    !outcome.step.leases.empty()},
                    {"borrowed", request.borrows},
                    {"activations_bytes", outcome.activations}})},
           {"overhead_bytes", request.flags.overhead()}}));
  doc->Say("Ranks", RanksText(request));
  doc->Say("Step",
           fmt::format("{}; {}", StepText(report),
                       Plural(std::ssize(outcome.step.accesses), "moment")));
  doc->Say(
      "Chunks",
      fmt::format("{} of up to {}{}, {} wasted; {} order{}",
                  Grouped(std::ssize(layout.chunks()) - oversize),
                  FormatSize(outcome.largest_chunk()),
                  oversize == 0 ? std::string()
                                : fmt::format(" and {} oversize, up to {}",
                                              Grouped(oversize),
                                              FormatSize(largest_oversize)),
                  FormatSize(layout.allocated_bytes() - layout.payload_bytes()),
                  ParamOrderName(report.subject.model.order),
                  report.flags().files.layout.empty()
                      ? std::string()
                      : fmt::format(", as {} says",
                                    Shown(report.flags().files.layout))));
}

void AddLargest(const LargestFit& largest, Document* doc) {
  doc->Set("largest", Fields({{"what", largest.what},
                              {"fits", largest.fits},
                              {"refused", largest.refused},
                              {"reason", largest.why}}));
  doc->Line({"largest", largest.what, largest.fits, largest.refused});
  const std::string_view unit = largest.what == "batch" ? "sequence" : "token";
  doc->Say("Largest",
           fmt::format("{}: {} {}; {} do{} not: {}", largest.what,
                       largest.fits == 0 ? "none" : Plural(largest.fits, unit),
                       largest.fits == 1 ? "fits" : "fit",
                       Plural(largest.refused, unit),
                       largest.refused == 1 ? "es" : "", largest.why));
}

// What the numbers leave out, so that nobody takes them for more.
std::string LeftOutText(const PlanReport& report) {
  std::vector<std::string_view> left;
  if (!report.outcome.request.activations && !report.subject.trace &&
      !report.flags().activations) {
    left.push_back("activations: give --seq, or --trace");
  }
  if (report.outcome.request.activations &&
      report.outcome.request.activations->other_mixers) {
    left.push_back(
        "what state spaces and linear attention keep, which are counted as "
        "attention");
  }
  if (report.flags().overhead() == Bytes(0)) {
    left.push_back(
        "what a CUDA context and NCCL hold: give --cuda-context, --nccl");
  }
  if (!report.subject.machine) {
    left.push_back("times: give --machine");
  } else if (report.outcome.step.compute_ns.empty()) {
    left.push_back("how long a rank computes: give --compute");
  }
  return fmt::format("{}", fmt::join(left, "; "));
}

Table VariantTable(std::string_view key, std::string_view word, bool timed) {
  return Table({.key = std::string(key), .word = std::string(word)},
               {{"what", "instead"},
                {"command"},
                Table::NotPlain("device_bytes", "device"),
                Table::NotPlain("host_bytes", "host"),
                Table::NotPlain("nvme_bytes", "nvme"),
                Table::NotPlain("moved_bytes", "moved a step"),
                Table::JsonOnly("fetch_cost"),
                Table::JsonOnly("least_seconds"),
                Table::JsonOnly("most_seconds"),
                Table::NotPlain("step_seconds", timed ? "a step" : "")});
}

void AddVariant(std::string_view what, std::string_view command,
                const PlanFigures& one, Mark mark, Table* table) {
  table->Add({what, command, one.device, Value::BytesOrDash(one.host),
              Value::BytesOrDash(one.nvme), one.moved, one.fetch_cost,
              one.least_seconds, one.most_seconds,
              Value::Seconds(one.step_seconds).Or("unknown")},
             mark);
}

// As data each kind by itself, on the page together below what was asked for.
void AddVariants(const PlanReport& report, Document* doc) {
  const PlanOutcome& outcome = report.outcome;
  const bool timed = report.subject.machine.has_value();
  Table all = VariantTable("", "", timed);
  if (outcome.seal) {
    AddVariant("as asked for", "", FiguresOf(outcome), Mark::kChosen, &all);
  }
  size_t count = 0;
  std::string commands;
  const auto add = [&](std::string_view key, std::string_view word,
                       const PlanVariants& variants) {
    Table table = VariantTable(key, word, timed);
    for (const PlanVariant& variant : variants) {
      const std::string command = PlanCommandText(variant.figures.flags);
      for (Table* to : {&table, &all}) {
        AddVariant(variant.what, command, variant.figures, Mark::kNone, to);
      }
      commands += fmt::format("  # {}\n  {}\n", variant.what, command);
      ++count;
    }
    doc->Add(std::move(table), Form::kData);
  };
  add("changes", "change", report.changes);
  add("alternatives", "alternative", report.alternatives);
  add("one_more_gib", "more", report.more);
  if (count == 0) return;
  doc->Add(std::move(all), Form::kPage);
  if (!outcome.seal) doc->Text(std::move(commands));
}

// For the page: homes of all chunks, and budgets around these.
void AddPictures(const PlanReport& report, Document* doc) {
  if (report.outcome.fits.ok()) {
    doc->Set("states",
             ListOf(report.outcome.seal->memory.placement.names.all()));
    doc->Set("chunk_list", PlannedChunksJson(report.subject, report.outcome));
  }
  doc->Set("budget_grid", ListOf(report.grid, [](const BudgetPoint& point) {
             return Fields({{"device_budget_bytes", point.device},
                            {"host_budget_bytes", point.host},
                            {"fits", point.fits},
                            {"moved_bytes", point.moved},
                            {"step_seconds", point.step_seconds}});
           }));
}

// --- The command ------------------------------------------------------------
// How good the plan's fetches are, whoever planned them.
Result<PlanCertificate> BoundOf(const PlanOutcome& outcome) {
  const double cost = outcome.forecast->fetch_cost;
  std::optional<PlanCertificate> bound = outcome.forecast->plan.certificate;
  if (!bound) {
    CASTOR_ASSIGN_OR_RETURN(
        const ExactPlan exact,
        PlanExact(outcome.step.accesses, outcome.seal->memory.problem));
    bound = exact.certificate;
    bound->optimal = cost <= bound->lower_bound;
  }
  bound->cost = cost;
  return *std::move(bound);
}

// Read back before anybody relies on it.
Status WritePlanFile(const PlanReport& report) {
  const std::string text =
      WritePlan(PlanFileOf(report.subject, report.outcome));
  CASTOR_RETURN_IF_ERROR(ParsePlan(text).status());
  return WriteFileAtomically(report.flags().output, text);
}

class PlanCommand final : public Command {
 public:
  std::string_view name() const override { return "plan"; }
  std::string_view summary() const override {
    return "whether a model fits, where everything goes, and how long a step "
           "takes";
  }

  void Declare(CLI::App& app) override { DeclarePlanFlags(app, &flags_); }

  Status Run(const Console& console) override {
    CASTOR_ASSIGN_OR_RETURN(const Form form, FormOf(flags_.json, flags_.plain));
    CASTOR_ASSIGN_OR_RETURN(const PlanReport report, RunPlan(flags_, console));
    const Document document = PlanDocument(report);
    Print(document, form, console);
    if (!flags_.html.empty()) {
      CASTOR_RETURN_IF_ERROR(
          WriteFileAtomically(flags_.html, PlanPage(document.Json())));
      console.Note(
          fmt::format("wrote {}: open it in a browser", Shown(flags_.html)));
    }
    if (report.outcome.fits.ok()) return report.compared;
    return Infeasible(
        "it does not fit; what would is printed with its commands");
  }

 private:
  PlanFlags flags_;
};

}  // namespace

Document PlanDocument(const PlanReport& report) {
  const bool fits = report.outcome.fits.ok();
  const std::string command = PlanCommandText(report.flags());
  Document doc("castor.plan-report/1");
  doc.Set("command", command);
  AddModel(report, &doc);
  AddConfiguration(report, &doc);
  if (report.largest) AddLargest(*report.largest, &doc);
  doc.Set("fits", fits);
  doc.Line({"fits", fits});
  doc.Line({"step_source", StepSourceName(report.subject.step_source())});
  doc.Set("reason", fits ? Value() : Value(report.outcome.fits.message()));
  doc.Gap();
  if (fits) {
    AddFit(report, &doc);
    doc.Say("Left out", LeftOutText(report));
  } else {
    doc.Say("Fits", fmt::format("no: {}", report.outcome.fits.message()));
    if (report.changes.empty()) {
      doc.Say("Changes", "no single change that was tried fits");
    } else {
      doc.Gap();
      doc.Text("Any one of these changes fits, and was planned to be sure:\n");
    }
  }
  AddVariants(report, &doc);
  if (!report.flags().html.empty()) AddPictures(report, &doc);
  if (!fits) {
    doc.Say("Left out", LeftOutText(report));
    return doc;
  }
  if (report.comparison) doc.Add("comparison", *report.comparison);
  if (report.explained) {
    doc.Set("explained", report.explained->Json()["chunks"]);
    doc.Gap();
    doc.Text(report.explained->Page());
  }
  const std::string& output = report.flags().output;
  if (output.empty()) {
    doc.SayUnbroken("Next", command + " -o plan.json");
  } else {
    doc.Set("output", output);
    doc.Say("Written", fmt::format("{}: for a trainer to load", Shown(output)));
  }
  return doc;
}

Result<PlanReport> RunPlan(const PlanFlags& flags, const Console& console) {
  CASTOR_RETURN_IF_ERROR(
      CheckOutputs(std::array{NamedPath{"MODEL", flags.model},
                              NamedPath{"--layout", flags.files.layout},
                              NamedPath{"--machine", flags.files.machine},
                              NamedPath{"--trace", flags.trace},
                              NamedPath{"--compare", flags.compare}},
                   std::array{NamedPath{"-o", flags.output},
                              NamedPath{"--html", flags.html}}));
  if (!flags.output.empty()) {
    CASTOR_RETURN_IF_ERROR(CheckFileTarget(flags.output));
  }
  if (!flags.html.empty()) CASTOR_RETURN_IF_ERROR(CheckFileTarget(flags.html));
  Progress progress(console);
  progress.Phase("reading the model");
  CASTOR_ASSIGN_OR_RETURN(PlanSubject subject, ReadPlanSubject(flags));
  std::optional<LargestFit> largest;
  PlanFlags planned = flags;
  if (flags.fit != "given") {
    progress.Phase("looking for the largest that fits");
    CASTOR_ASSIGN_OR_RETURN(largest, LargestThatFits(subject, flags));
    planned = WithLargest(flags, *largest);
  }
  progress.Phase("planning");
  CASTOR_ASSIGN_OR_RETURN(PlanOutcome outcome, MakePlan(subject, planned));
  PlanReport report{std::move(subject), std::move(outcome)};
  report.largest = std::move(largest);
  if (report.outcome.fits.ok()) {
    CASTOR_ASSIGN_OR_RETURN(report.bound, BoundOf(report.outcome));
    if (!flags.compare.empty()) {
      CASTOR_ASSIGN_OR_RETURN(report.comparison,
                              CompareWithRun(report.subject, report.outcome,
                                             flags.compare, &report.compared));
    }
    if (!flags.explain.empty()) {
      Result<Document> explained =
          ExplainHomes(report.subject, report.outcome, flags.explain);
      if (!explained.ok()) return explained.status().WithContext("--explain");
      report.explained = *std::move(explained);
    }
    if (std::ssize(report.outcome.step.accesses) <= kMostAccessesTried) {
      progress.Phase("trying other configurations");
      CASTOR_ASSIGN_OR_RETURN(report.alternatives,
                              Alternatives(report.subject, report.outcome));
      CASTOR_ASSIGN_OR_RETURN(report.more,
                              OneMoreGiB(report.subject, report.outcome));
    } else {
      console.Note(fmt::format(
          "other configurations are not tried: the step has {} accesses, and "
          "at most {} are planned again; give fewer --micro-batches to see "
          "them",
          report.outcome.step.accesses.size(), kMostAccessesTried));
    }
    if (!flags.output.empty()) CASTOR_RETURN_IF_ERROR(WritePlanFile(report));
  } else {
    progress.Phase("looking for changes that fit");
    CASTOR_ASSIGN_OR_RETURN(report.changes,
                            ChangesThatFit(report.subject, report.outcome));
  }
  if (!flags.html.empty() &&
      std::ssize(report.outcome.step.accesses) <= kMostAccessesDrawn) {
    progress.Phase("planning other budgets");
    CASTOR_ASSIGN_OR_RETURN(report.grid,
                            BudgetGrid(report.subject, report.outcome));
  }
  progress.Finish();
  const ModelList& model = report.subject.model;
  for (const std::string& note : model.notes) console.Note(note);
  if (!model.library.empty() && report.outcome.request.activations) {
    console.Note(
        fmt::format("activations are counted as those of a transformer of "
                    "these widths; a model of family {} may keep others",
                    model.family));
  }
  return report;
}

std::unique_ptr<Command> MakePlanCommand() {
  return std::make_unique<PlanCommand>();
}

}  // namespace castor
