// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_MANUAL_H_
#define CASTOR_TOOLS_CLI_MANUAL_H_

// What `--help` says of a program and its commands, in the forms that are
// installed: pages of the manual, and the completion of a shell. All of it is
// made of the table that flags are declared in. Pure functions, thread-safe.

#include <string>
#include <vector>

#include "tools/cli/flags.h"

namespace castor {

struct CommandManual {
  std::string name;  // "search"
  std::string summary;
  std::vector<FlagHelp> flags;
  std::string footer;
};

struct ProgramManual {
  std::string name;  // "castor"
  std::string version;
  std::string summary;
  std::string exit_codes;  // lines
  std::vector<CommandManual> commands;
};

// The page of the program in section 1 of the manual, as roff.
std::string ProgramPage(const ProgramManual& program);
// The page of one of its commands: castor-search(1).
std::string CommandPage(const ProgramManual& program,
                        const CommandManual& command);

// The script by which bash completes the program's command lines.
std::string BashCompletion(const ProgramManual& program);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_MANUAL_H_
