// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_COMMAND_H_

// `castor simulate TRACE`: how long a step takes under another budget, machine
// or policy, and why. Owner thread only.

#include <memory>

#include "tools/cli/command.h"

namespace castor {

std::unique_ptr<Command> MakeSimulateCommand();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_COMMAND_H_
