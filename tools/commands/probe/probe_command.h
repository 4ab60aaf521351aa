// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PROBE_PROBE_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_PROBE_PROBE_COMMAND_H_

// `castor probe`: how fast this machine is, as a file for every other command.
// Owner thread only.

#include <memory>

#include "tools/cli/command.h"

namespace castor {

std::unique_ptr<Command> MakeProbeCommand();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PROBE_PROBE_COMMAND_H_
