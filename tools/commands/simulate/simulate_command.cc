// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/simulate_command.h"

#include <ostream>

#include "tools/cli/atomic_file.h"
#include "tools/cli/json_out.h"
#include "tools/cli/text_table.h"
#include "tools/commands/simulate/simulate_flags.h"
#include "tools/commands/simulate/simulate_json.h"
#include "tools/commands/simulate/simulate_run.h"
#include "tools/commands/simulate/simulate_text.h"
#include "tools/commands/simulate/sweep_svg.h"

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
    Write(report, console);
    return OkStatus();
  }

 private:
  static void Write(const SimulateReport& report, const Console& console) {
    switch (report.request.form) {
      case SimulateRequest::Form::kPage:
        console.out << SimulateText(
            report, console.colour ? Emphasis::kTerminal : Emphasis::kNone);
        break;
      case SimulateRequest::Form::kPlain:
        console.out << SimulatePlain(report);
        break;
      case SimulateRequest::Form::kJson:
        WriteJson(SimulateJson(report), console.out);
        break;
    }
  }

  SimulateFlags flags_;
};

}  // namespace

std::unique_ptr<Command> MakeSimulateCommand() {
  return std::make_unique<SimulateCommand>();
}

}  // namespace castor
