// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <memory>

#include "tools/cli/atomic_file.h"
#include "tools/cli/document.h"
#include "tools/commands/registry.h"
#include "tools/commands/simulate/simulate_flags.h"
#include "tools/commands/simulate/simulate_run.h"

namespace castor {
namespace {

class SimulateCommand final : public Command {
 public:
  std::string_view name() const override { return "simulate"; }
  std::string_view summary() const override {
    return "how long a recorded step takes under other budgets, and why";
  }

  void Declare(CLI::App& app) override { DeclareSimulateFlags(app, &flags_); }

  Status Run(const Console& console) override {
    CASTOR_ASSIGN_OR_RETURN(const Form form, FormOf(flags_.json, flags_.plain));
    CASTOR_ASSIGN_OR_RETURN(const SimulateRequest request,
                            CheckSimulateFlags(flags_));
    if (!request.svg.empty()) {
      CASTOR_RETURN_IF_ERROR(CheckFileTarget(request.svg));
    }
    CASTOR_ASSIGN_OR_RETURN(const SimulateReport report,
                            RunSimulate(request, console));
    if (!request.svg.empty()) {
      CASTOR_RETURN_IF_ERROR(
          WriteFileAtomically(request.svg, SweepSvg(report)));
    }
    Print(SimulateDocument(report), form, console);
    return OkStatus();
  }

 private:
  SimulateFlags flags_;
};

}  // namespace

std::unique_ptr<Command> MakeSimulateCommand() {
  return std::make_unique<SimulateCommand>();
}

}  // namespace castor
