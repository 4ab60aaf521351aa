// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <memory>

#include "tools/cli/document.h"
#include "tools/commands/plan/plan_flags.h"
#include "tools/commands/plan/plan_run.h"
#include "tools/commands/registry.h"

namespace castor {
namespace {

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

std::unique_ptr<Command> MakePlanCommand() {
  return std::make_unique<PlanCommand>();
}

}  // namespace castor
