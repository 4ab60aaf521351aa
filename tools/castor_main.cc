// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <ios>
#include <string>
#include <vector>

#include "chunk/base/version.h"
#include "tools/cli/console.h"
#include "tools/cli/program.h"
#include "tools/commands/registry.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  castor::Program program{
      .name = "castor",
      .version = std::string(castor::kVersion),
      .summary =
          "Castor packs a model's parameters into equal chunks and plans where "
          "they live.",
      .commands = {}};
  for (const auto make : {castor::MakeSearchCommand, castor::MakePlanCommand,
                          castor::MakeDoctorCommand, castor::MakeProbeCommand,
                          castor::MakeSimulateCommand,
                          castor::MakeReportCommand, castor::MakeExplainCommand,
                          castor::MakeDiffCommand, castor::MakeCkptCommand}) {
    program.commands.push_back(make());  // in the order of `castor help`
  }
  return castor::RunProgram(program,
                            std::vector<std::string>(argv + 1, argv + argc),
                            castor::Console::Standard());
}
