// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/diff/diff_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include "chunk/base/json_value.h"
#include "chunk/base/quote.h"
#include "collectives/plan_file.h"
#include "offload/record/record_reader.h"
#include "tools/cli/flags.h"
#include "tools/cli/json_out.h"
#include "tools/commands/diff/diff_documents.h"
#include "tools/commands/diff/diff_forms.h"
#include "tools/commands/diff/diff_layouts.h"
#include "tools/commands/diff/diff_runs.h"
#include "tools/commands/file_kind.h"
#include "tools/models/input_file.h"
#include "tools/models/layout_reader.h"
#include "tools/report/run_times.h"

namespace castor {
namespace {

constexpr uint64_t kMaxDocumentBytes = uint64_t{64} << 20;

constexpr char kFooter[] =
    R"(A and B are of one kind: records of runs (train_gpt --record), plans (castor plan -o), what
castor plan --json or castor simulate --json printed, or layouts (castor search -o); traces of
steps are not compared, see castor simulate --then. Of runs
the step times, peaks of tiers, bytes of links, stalls by cause, and chunks that live elsewhere
are put next to each other, without steps 1 and 2, in which the plan is made; of documents every
value that differs; of layouts chunks, waste, and parameters that lie elsewhere.

Exit code 0, whether they differ or not; 6: a record was cut off, and is compared as far as it
can be read.

Examples:
  castor diff before.rec after.rec
  castor diff a.rec b.rec --steps 10-30 --json
  castor diff plan-16GiB.json plan-24GiB.json
)";

Result<std::string> ReadText(const std::string& path) {
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::OpenRegular(path));
  return file.ReadAll(kMaxDocumentBytes);
}

Result<JsonValue> ReadDocument(const std::string& path, FileKind kind) {
  CASTOR_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  if (kind == FileKind::kPlan) {
    if (Status plan = ParsePlan(text).status(); !plan.ok()) {
      return plan.WithContext(QuotedPath(path));
    }
  }
  Result<JsonValue> json = ParseJson(text);
  if (!json.ok()) return json.status().WithContext(QuotedPath(path));
  if (json->is_object()) return json;
  return Malformed(fmt::format("{} is no object of JSON", QuotedPath(path)));
}

class DiffCommand final : public Command {
 public:
  std::string_view name() const override { return "diff"; }
  std::string_view summary() const override {
    return "what two runs, plans or layouts have in common and what not";
  }

  void Declare(CLI::App& app) override {
    AddPositional(app, "A", &a_, "a record, plan, layout or document");
    AddPositional(app, "B", &b_, "another one of the same kind");
    AddTextFlag(app, "--steps", &steps_,
                "of runs, look at these steps only, for example 3-30");
    AddSwitch(app, "--json", &json_, "print one JSON document");
    AddSwitch(app, "--plain", &plain_, "print tab-separated lines");
    SetHelpFooter(app, kFooter);
  }

  Status Run(const Console& console) override {
    if (json_ && plain_) {
      return InvalidArgument("--json and --plain exclude each other");
    }
    CASTOR_ASSIGN_OR_RETURN(const FileKind kind, CommonKind());
    if (kind != FileKind::kRecord && !steps_.empty()) {
      return InvalidArgument(
          fmt::format("--steps is for records of runs, and these are each {}; "
                      "leave it away",
                      FileKindName(kind)));
    }
    DiffReport report;
    report.a = a_;
    report.b = b_;
    Status completeness;
    switch (kind) {
      case FileKind::kRecord:
        report.kind = "runs";
        CASTOR_RETURN_IF_ERROR(AddRuns(&report, &completeness));
        break;
      case FileKind::kLayout:
        report.kind = "layouts";
        CASTOR_RETURN_IF_ERROR(AddLayouts(&report));
        break;
      default:
        report.kind = kind == FileKind::kSimulation ? "simulations" : "plans";
        CASTOR_RETURN_IF_ERROR(AddDocuments(kind, &report));
    }
    if (json_) {
      WriteJson(DiffJson(report), console.out);
    } else if (plain_) {
      console.out << DiffPlain(report);
    } else {
      console.out << DiffText(
          report, console.colour ? Emphasis::kTerminal : Emphasis::kNone);
    }
    return completeness;
  }

 private:
  // InvalidArgument where one is missing, Malformed where one is none of
  // Castor's files or they are of two kinds.
  Result<FileKind> CommonKind() const {
    for (const std::string* path : {&a_, &b_}) {
      CASTOR_RETURN_IF_ERROR(InputFile::OpenRegular(*path).status());
      if (KindOfFile(*path) == FileKind::kTrace) {
        return InvalidArgument(fmt::format(
            "{} is the trace of a step, and two of one kind are compared that "
            "are records of runs, plans, layouts, or what castor plan --json "
            "or castor simulate --json printed; castor simulate {} --then "
            "OTHER says how a step departs from it",
            QuotedPath(*path), QuotedPath(*path)));
      }
      if (KindOfFile(*path) == FileKind::kOther) {
        return Malformed(fmt::format(
            "{} is neither the record of a run nor a plan, a layout, or what "
            "castor plan --json or castor simulate --json printed",
            QuotedPath(*path)));
      }
    }
    const FileKind kind = KindOfFile(a_);
    const FileKind other = KindOfFile(b_);
    if (kind == other) return kind;
    return InvalidArgument(fmt::format(
        "{} is {} and {} is {}: give two of one kind", QuotedPath(a_),
        FileKindName(kind), QuotedPath(b_), FileKindName(other)));
  }

  Status AddRuns(DiffReport* report, Status* completeness) const {
    CASTOR_ASSIGN_OR_RETURN(const RunRecord a, ReadRecord(a_));
    CASTOR_ASSIGN_OR_RETURN(const RunRecord b, ReadRecord(b_));
    StepRange steps;
    if (!steps_.empty()) {
      CASTOR_ASSIGN_OR_RETURN(steps, ParseStepRange(steps_));
    } else if (std::min(LastStep(a), LastStep(b)) >= kFirstSteadyStep) {
      steps.first = kFirstSteadyStep;
    }
    for (const auto& [record, path] : {std::pair{&a, &a_}, {&b, &b_}}) {
      if (!FindStepWindows(*record, steps).empty()) continue;
      return InvalidArgument(fmt::format(
          "{} holds none of the steps {} to {}; its last one is {}",
          QuotedPath(*path), steps.first, steps.last, LastStep(*record)));
    }
    report->sections = DiffRuns(a, b, steps);
    *completeness = a.completeness.ok() ? b.completeness : a.completeness;
    return OkStatus();
  }

  Status AddLayouts(DiffReport* report) const {
    CASTOR_ASSIGN_OR_RETURN(const LayoutFile a, ReadLayoutFile(a_));
    CASTOR_ASSIGN_OR_RETURN(const LayoutFile b, ReadLayoutFile(b_));
    report->sections = DiffLayouts(a, b);
    return OkStatus();
  }

  Status AddDocuments(FileKind kind, DiffReport* report) const {
    CASTOR_ASSIGN_OR_RETURN(const JsonValue a, ReadDocument(a_, kind));
    CASTOR_ASSIGN_OR_RETURN(const JsonValue b, ReadDocument(b_, kind));
    report->sections = DiffDocuments(a, b);
    return OkStatus();
  }

  // The first step follows no plan, and the second one begins with what the
  // first left.
  static constexpr int32_t kFirstSteadyStep = 3;

  std::string a_;
  std::string b_;
  std::string steps_;
  bool json_ = false;
  bool plain_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeDiffCommand() {
  return std::make_unique<DiffCommand>();
}

}  // namespace castor
