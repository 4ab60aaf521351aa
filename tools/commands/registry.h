// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_REGISTRY_H_
#define CASTOR_TOOLS_COMMANDS_REGISTRY_H_

// The subcommands of `castor`, in the order in which `castor help` lists them.
// A new command is a file of its own, a dependency of this target, and a line
// in registry.cc. Owner thread only.

#include <memory>
#include <vector>

#include "tools/cli/command.h"

namespace castor {

std::vector<std::unique_ptr<Command>> AllCommands();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_REGISTRY_H_
