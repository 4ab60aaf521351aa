// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_COMMAND_H_

// `castor explain WHAT PATTERN`: why parameters are where a plan has them, or
// where they were in a recorded run. Owner thread only.

#include <memory>

#include "tools/cli/command.h"

namespace castor {

std::unique_ptr<Command> MakeExplainCommand();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_COMMAND_H_
