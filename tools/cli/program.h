// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_PROGRAM_H_
#define CASTOR_TOOLS_CLI_PROGRAM_H_

// The command line `castor COMMAND ...`: finds the command, reads its flags,
// runs it, and turns whatever happens into an exit code (ExitCode of status.h).
// Owner thread only.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/command.h"
#include "tools/cli/console.h"

namespace castor {

struct Program {
  std::string name;     // "castor"
  std::string version;  // "0.1.0"
  std::string summary;  // one line
  std::vector<std::unique_ptr<Command>> commands;
};

// `args` is the command line without the program's name. Nothing is thrown.
int RunProgram(const Program& program, const std::vector<std::string>& args,
               const Console& console);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_PROGRAM_H_
