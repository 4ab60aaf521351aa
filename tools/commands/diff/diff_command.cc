// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "chunk/text/json_value.h"
#include "chunk/text/quote.h"
#include "collectives/answers/plan_file.h"
#include "offload/record/record_reader.h"
#include "tools/cli/flags.h"
#include "tools/cli/text/document.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/diff/diff.h"
#include "tools/commands/file_kind.h"
#include "tools/commands/registry.h"
#include "tools/models/files/castor_files.h"
#include "tools/models/files/input_file.h"
#include "tools/report/statistics/run_times.h"

namespace castor {
namespace {

constexpr uint64_t kMaxDocumentBytes = uint64_t{64} << 20;

constexpr char kFooter[] =
    R"(A and B are of one kind:
  records    of runs (train_gpt --record): step times, peaks of tiers, bytes of links, stalls by
             cause, and chunks that live elsewhere; without steps 1 and 2, which make the plan
  plans      of castor plan -o: every value that differs
  documents  of castor plan --json or castor simulate --json: every value that differs
  layouts    of castor search -o: chunks, waste, and parameters that lie elsewhere
Traces of steps are not compared.

The exit code is 0, whether A and B differ or not. The exit code is 6 where a record was cut off;
its readable part is compared.

Examples:
  castor diff before.rec after.rec
  castor diff a.rec b.rec --steps 10-30 --json
  castor diff plan-16GiB.json plan-24GiB.json
)";

Result<JsonValue> ParseDocument(const std::string& text, FileKind kind) {
  if (kind == FileKind::kPlan) {
    CASTOR_RETURN_IF_ERROR(ParsePlan(text).status());
  }
  Result<JsonValue> json = ParseJson(text);
  if (!json.ok() || json->is_object()) return json;
  return Malformed("it is no object of JSON");
}

Result<JsonValue> ReadDocument(const std::string& path, FileKind kind) {
  return ParseFile(path, kMaxDocumentBytes, [kind](const std::string& text) {
    return ParseDocument(text, kind);
  });
}

Value ChangeOf(const DiffRow& row) {
  if (row.equal()) return "equal";
  const JsonValue& a = row.a.Json();
  const JsonValue& b = row.b.Json();
  if (!a.is_number() || !b.is_number() || a.real() == 0) return "differs";
  return Value::Change(b.real() / a.real() - 1);
}

JsonValue RowJson(const DiffRow& row) {
  const std::string unit(row.a.unit().empty() ? row.b.unit() : row.a.unit());
  return Fields({{"what", row.what},
                 {"a" + unit, row.a},
                 {"b" + unit, row.b},
                 {"equal", row.equal()}});
}

// castor.diff/1: {"schema", "kind", "a", "b", "equal", "sections": [{"name",
// "rows": [{"what", "a", "b", "equal"}]}]}, where bytes are "a_bytes" and
// "b_bytes", and times "a_ns", "b_ns", "a_seconds", "b_seconds". Plain lines
// are of a section, what, and the value on both sides.
Document DiffDocument(const std::string& kind, const std::string& a,
                      const std::string& b,
                      const std::vector<DiffSection>& sections) {
  constexpr size_t kMostRows = 24;
  bool equal = true;
  for (const DiffSection& section : sections) {
    for (const DiffRow& row : section.rows) equal = equal && row.equal();
  }
  Document document("castor.diff/1");
  document.Set("kind", kind);
  document.Set("a", a);
  document.Set("b", b);
  document.Set("equal", equal);
  document.Say("A", Shown(a));
  document.Say("B", Shown(b));
  if (equal) document.Say("Equal", "in everything below");
  for (const DiffSection& section : sections) {
    Table table({.word = section.name, .most_rows = kMostRows},
                {{"what", section.name, Table::Align::kLeft},
                 {"a", "A", Table::Align::kRight},
                 {"b", "B", Table::Align::kRight},
                 {"", "change", Table::Align::kRight}});
    for (const DiffRow& row : section.rows) {
      table.Add({Value::Name(row.what), row.a, row.b, ChangeOf(row)});
    }
    document.Add(std::move(table));
  }
  document.Set("sections", ListOf(sections, [](const DiffSection& section) {
                 return Fields({{"name", section.name},
                                {"rows", ListOf(section.rows, RowJson)}});
               }));
  return document;
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
    CASTOR_ASSIGN_OR_RETURN(const Form form, FormOf(json_, plain_));
    CASTOR_ASSIGN_OR_RETURN(const FileKind kind, CommonKind());
    if (kind != FileKind::kRecord && !steps_.empty()) {
      return InvalidArgument(
          fmt::format("--steps is for records of runs, and these are each {}; "
                      "leave it away",
                      FileKindName(kind)));
    }
    std::string words = kind == FileKind::kSimulation ? "simulations" : "plans";
    std::vector<DiffSection> sections;
    Status completeness;
    if (kind == FileKind::kRecord) {
      words = "runs";
      CASTOR_ASSIGN_OR_RETURN(sections, Runs(&completeness));
    } else if (kind == FileKind::kLayout) {
      words = "layouts";
      CASTOR_ASSIGN_OR_RETURN(const LayoutFile a, ReadLayoutFile(a_));
      CASTOR_ASSIGN_OR_RETURN(const LayoutFile b, ReadLayoutFile(b_));
      sections = DiffLayouts(a, b);
    } else {
      CASTOR_ASSIGN_OR_RETURN(const JsonValue a, ReadDocument(a_, kind));
      CASTOR_ASSIGN_OR_RETURN(const JsonValue b, ReadDocument(b_, kind));
      sections = DiffDocuments(a, b);
    }
    Print(DiffDocument(words, a_, b_, sections), form, console);
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

  Result<std::vector<DiffSection>> Runs(Status* completeness) const {
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
    *completeness = a.completeness.ok() ? b.completeness : a.completeness;
    return DiffRuns(a, b, steps);
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
