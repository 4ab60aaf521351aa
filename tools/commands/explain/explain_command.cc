// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "chunk/base/quote.h"
#include "tools/cli/document.h"
#include "tools/cli/flags.h"
#include "tools/cli/progress.h"
#include "tools/commands/explain/explain_run.h"
#include "tools/commands/file_kind.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_request.h"
#include "tools/commands/registry.h"

namespace castor {
namespace {

constexpr char kFooter[] =
    R"(MODEL is what castor plan takes, with the same flags: of every chunk that holds a parameter
whose name matches PATTERN it is said on which tier each state lives, which rule, limit or
budget put it there, and what a step moves over which link because of it. In place of MODEL
the record of a run may stand (train_gpt --record): where the chunk was over a step, what was
moved, and who waited for it and why. * in PATTERN stands for any characters; chunk.7 is the
chunk of that number.

Exit code 3: the model does not fit; castor plan says what would.

Examples:
  castor explain ./Llama-3-8B '*.embed*' --device-budget 24GiB --host-budget 64GiB
  castor explain config.json 'h.0.*' --device-budget 8GiB --host-budget 32GiB --place nvme:wte.*
  castor explain run.rec chunk.0 --steps 2-30
)";

class ExplainCommand final : public Command {
 public:
  std::string_view name() const override { return "explain"; }
  std::string_view summary() const override {
    return "why parameters are where they are, by a plan or in a recorded run";
  }

  void Declare(CLI::App& app) override {
    DeclarePlannedFlags(app, &flags_);
    AddPositional(app, "PATTERN", &pattern_,
                  "names of parameters, or chunk.N: see below");
    AddTextFlag(app, "--steps", &steps_,
                "of a run, look at these steps only, for example 2-30");
    AddSwitch(app, "--json", &json_, "print one JSON document");
    AddSwitch(app, "--plain", &plain_, "print tab-separated lines");
    SetHelpFooter(app, kFooter);
  }

  Status Run(const Console& console) override {
    CASTOR_ASSIGN_OR_RETURN(const Form form, FormOf(json_, plain_));
    if (KindOfFile(flags_.model) == FileKind::kRecord) {
      return ExplainRecord(form, console);
    }
    if (!steps_.empty()) {
      return InvalidArgument(fmt::format(
          "--steps is for the record of a run, and {} is none; leave it away",
          QuotedPath(flags_.model)));
    }
    return ExplainPlan(form, console);
  }

 private:
  Status ExplainPlan(Form form, const Console& console) {
    Progress progress(console);
    progress.Phase("reading the model");
    CASTOR_ASSIGN_OR_RETURN(const PlanSubject subject, ReadPlanSubject(flags_));
    progress.Phase("planning");
    CASTOR_ASSIGN_OR_RETURN(const PlanOutcome outcome,
                            MakePlan(subject, flags_));
    progress.Finish();
    if (!outcome.fits.ok()) {
      return Infeasible(fmt::format(
          "there is no plan to explain: {}; {} prints the smallest changes "
          "that fit",
          outcome.fits.message(), PlanCommandText(flags_)));
    }
    CASTOR_ASSIGN_OR_RETURN(Document explained,
                            ExplainHomes(subject, outcome, pattern_));
    Document doc("castor.explanation/1");
    doc.Set("command", PlanCommandText(flags_));
    doc.Set("pattern", pattern_);
    doc.Add("", std::move(explained));
    Print(doc, form, console);
    return OkStatus();
  }

  Status ExplainRecord(Form form, const Console& console) {
    PlanFlags none;
    none.model = flags_.model;
    if (PlanCommandText(flags_) != PlanCommandText(none)) {
      return InvalidArgument(fmt::format(
          "{} is the record of a run, which is explained as it was: leave the "
          "flags of a plan away",
          QuotedPath(flags_.model)));
    }
    StepRange steps;
    if (!steps_.empty()) {
      CASTOR_ASSIGN_OR_RETURN(steps, ParseStepRange(steps_));
    }
    CASTOR_ASSIGN_OR_RETURN(const RunRecord record, ReadRecord(flags_.model));
    CASTOR_ASSIGN_OR_RETURN(const Document explained,
                            ExplainRun(flags_.model, record, pattern_, steps));
    Print(explained, form, console);
    return record.completeness;
  }

  PlanFlags flags_;
  std::string pattern_;
  std::string steps_;
  bool json_ = false;
  bool plain_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeExplainCommand() {
  return std::make_unique<ExplainCommand>();
}

}  // namespace castor
