// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/registry.h"

#include "tools/commands/ckpt/ckpt_command.h"
#include "tools/commands/diff/diff_command.h"
#include "tools/commands/doctor/doctor_command.h"
#include "tools/commands/explain/explain_command.h"
#include "tools/commands/plan/plan_command.h"
#include "tools/commands/probe/probe_command.h"
#include "tools/commands/report_command.h"
#include "tools/commands/search/search_command.h"
#include "tools/commands/simulate/simulate_command.h"

namespace castor {

std::vector<std::unique_ptr<Command>> AllCommands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(MakeSearchCommand());
  commands.push_back(MakePlanCommand());
  commands.push_back(MakeDoctorCommand());
  commands.push_back(MakeProbeCommand());
  commands.push_back(MakeSimulateCommand());
  commands.push_back(MakeReportCommand());
  commands.push_back(MakeExplainCommand());
  commands.push_back(MakeDiffCommand());
  commands.push_back(MakeCkptCommand());
  return commands;
}

}  // namespace castor
