// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_REGISTRY_H_
#define CASTOR_TOOLS_COMMANDS_REGISTRY_H_

// How each subcommand of `castor` is made: in the file of its name,
// search/search_command.cc and so on. A new command is such a file, a line
// here, and one in castor_main.cc with its dependency. Thread-safe.

#include <memory>

#include "tools/cli/command.h"

namespace castor {

std::unique_ptr<Command> MakeCkptCommand();
std::unique_ptr<Command> MakeDiffCommand();
std::unique_ptr<Command> MakeDoctorCommand();
std::unique_ptr<Command> MakeExplainCommand();
std::unique_ptr<Command> MakePlanCommand();
std::unique_ptr<Command> MakeProbeCommand();
std::unique_ptr<Command> MakeReportCommand();
std::unique_ptr<Command> MakeSearchCommand();
std::unique_ptr<Command> MakeSimulateCommand();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_REGISTRY_H_
