// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "chunk/base/quote.h"
#include "collectives/plan_file.h"
#include "tools/cli/atomic_file.h"
#include "tools/cli/progress.h"
#include "tools/commands/registry.h"

namespace castor {
namespace {

// Of the plan itself, whoever made it.
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

// `path` as readers of the plan find it: from the plan's folder on.
std::string FromPlan(const std::string& path, const std::string& plan) {
  if (path.empty()) return path;
  const std::filesystem::path written(plan);
  const std::filesystem::path folder =
      written.has_parent_path() ? written.parent_path() : ".";
  return std::filesystem::proximate(path, folder).string();
}

// Read back before anybody relies on it.
Status WritePlanFile(const PlanReport& report) {
  const PlanOutcome& outcome = report.outcome;
  const PlanFlags& flags = report.flags();
  PlanFile file;
  file.model = report.subject.model.name;
  file.tensors = std::ssize(report.subject.model.params);
  file.elements = report.subject.elements;
  file.world = flags.world;
  file.engine = outcome.request.options;
  file.engine.device_budget = outcome.engine_budget(Tier::kDevice);
  file.files.layout = FromPlan(flags.files.layout, flags.output);
  file.files.machine = FromPlan(flags.files.machine, flags.output);
  file.nvme = flags.nvme;
  const std::string text = WritePlan(file);
  CASTOR_RETURN_IF_ERROR(ParsePlan(text).status());
  return WriteFileAtomically(flags.output, text);
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
  progress.Phase("planning");
  CASTOR_ASSIGN_OR_RETURN(PlanOutcome outcome, MakePlan(subject, flags));
  PlanReport report{std::move(subject), std::move(outcome)};
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
    CASTOR_ASSIGN_OR_RETURN(report.alternatives,
                            Alternatives(report.subject, report.outcome));
    CASTOR_ASSIGN_OR_RETURN(report.more,
                            OneMoreGiB(report.subject, report.outcome));
    if (!flags.output.empty()) CASTOR_RETURN_IF_ERROR(WritePlanFile(report));
  } else {
    CASTOR_ASSIGN_OR_RETURN(report.changes,
                            ChangesThatFit(report.subject, report.outcome));
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
