// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DIFF_DIFF_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_DIFF_DIFF_COMMAND_H_

// `castor diff A B`: what two runs, plans or layouts have in common and what
// not. Owner thread only.

#include <memory>

#include "tools/cli/command.h"

namespace castor {

std::unique_ptr<Command> MakeDiffCommand();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DIFF_DIFF_COMMAND_H_
