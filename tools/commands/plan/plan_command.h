// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMMAND_H_

// `castor plan`: does a model fit, where does everything go, how long does a
// step take. Owner thread only.

#include <memory>

#include "tools/cli/command.h"

namespace castor {

std::unique_ptr<Command> MakePlanCommand();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_COMMAND_H_
