// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/quote.h"
#include "collectives/plan_file.h"
#include "placement/exact_policy.h"
#include "tools/cli/atomic_file.h"
#include "tools/cli/document.h"
#include "tools/cli/progress.h"
#include "tools/commands/plan/plan_compare.h"
#include "tools/commands/plan/plan_explain.h"
#include "tools/commands/plan/plan_flags.h"
#include "tools/commands/plan/plan_request.h"
#include "tools/commands/registry.h"

namespace castor {
namespace {

Result<PlanBound> BoundOf(const PlanOutcome& outcome) {
  if (outcome.forecast->plan.certificate) {
    const PlanCertificate& proved = *outcome.forecast->plan.certificate;
    return PlanBound{proved.lower_bound, proved.optimal};
  }
  CASTOR_ASSIGN_OR_RETURN(
      const ExactPlan exact,
      PlanExact(outcome.step.accesses, outcome.seal->memory.problem));
  const double bound = exact.certificate.lower_bound;
  return PlanBound{bound, outcome.forecast->fetch_cost <= bound};
}

// `path` as readers of the plan find it: from the plan's folder on.
std::string FromPlan(const std::string& path, const std::string& plan) {
  if (path.empty()) return path;
  const std::filesystem::path written(plan);
  const std::filesystem::path folder =
      written.has_parent_path() ? written.parent_path() : ".";
  return std::filesystem::proximate(path, folder).string();
}

PlanFile FileOf(const PlanReport& report) {
  const PlanOutcome& outcome = report.outcome;
  const ZeroOptions& options = outcome.request.options;
  const PlanTotals totals = TotalsOf(report.subject);
  PlanFile file;
  file.model = report.subject.model.name;
  file.tensors = std::ssize(report.subject.model.params);
  file.elements = Elements(totals.elements);
  file.world = outcome.request.world;
  file.engine = options;
  file.engine.device_budget = outcome.engine_budget(Tier::kDevice);
  file.files.layout = FromPlan(report.flags.files.layout, report.flags.output);
  file.files.machine =
      FromPlan(report.flags.files.machine, report.flags.output);
  if (!options.nvme.empty()) file.nvme = options.nvme[0].size;
  return file;
}

// Read back before anybody relies on it.
Status WritePlanFile(const PlanReport& report) {
  const std::string text = WritePlan(FileOf(report));
  CASTOR_RETURN_IF_ERROR(ParsePlan(text).status());
  return WriteFileAtomically(report.flags.output, text);
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
    Print(PlanDocument(report), form, console);
    if (report.outcome.fits.ok()) return OkStatus();
    return Infeasible(
        "it does not fit; what would is printed with its commands");
  }

 private:
  PlanFlags flags_;
};

}  // namespace

Result<PlanReport> RunPlan(const PlanFlags& flags, const Console& console) {
  if (!flags.output.empty()) {
    CASTOR_RETURN_IF_ERROR(CheckFileTarget(flags.output));
  }
  Progress progress(console);
  progress.Phase("reading the model");
  CASTOR_ASSIGN_OR_RETURN(PlanSubject subject, ReadPlanSubject(flags));
  CASTOR_ASSIGN_OR_RETURN(const PlanRequest request,
                          CheckPlanFlags(flags, subject));
  progress.Phase("planning");
  CASTOR_ASSIGN_OR_RETURN(PlanOutcome outcome, MakePlan(subject, request));
  PlanReport report{
      flags, std::move(subject), std::move(outcome), {}, {}, {}, {}, {}, {},
      {}};
  if (report.outcome.fits.ok()) {
    CASTOR_ASSIGN_OR_RETURN(report.bound, BoundOf(report.outcome));
    if (!flags.compare.empty()) {
      CASTOR_ASSIGN_OR_RETURN(
          report.comparison,
          CompareWithRun(report.subject, report.outcome, flags.compare));
    }
    if (!flags.explain.empty()) {
      Result<Document> explained =
          ExplainHomes(report.subject, report.outcome, flags.explain);
      if (!explained.ok()) return explained.status().WithContext("--explain");
      report.explained = *std::move(explained);
    }
    CASTOR_ASSIGN_OR_RETURN(
        report.alternatives,
        Alternatives(report.subject, flags, report.outcome));
    CASTOR_ASSIGN_OR_RETURN(report.more,
                            OneMoreGiB(report.subject, flags, report.outcome));
    if (!flags.output.empty()) {
      CASTOR_RETURN_IF_ERROR(WritePlanFile(report));
      report.output = flags.output;
    }
  } else {
    CASTOR_ASSIGN_OR_RETURN(
        report.changes, ChangesThatFit(report.subject, flags, report.outcome));
  }
  progress.Finish();
  for (const std::string& note : report.subject.model.notes) {
    console.Note(note);
  }
  return report;
}

std::unique_ptr<Command> MakePlanCommand() {
  return std::make_unique<PlanCommand>();
}

}  // namespace castor
