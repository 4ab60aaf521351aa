// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_REPORT_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_REPORT_COMMAND_H_

// `castor report FILE`: where chunks were in a recorded run, what moved, who
// waited for what. Owner thread only.

#include <memory>

#include "tools/cli/command.h"

namespace castor {

std::unique_ptr<Command> MakeReportCommand();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_REPORT_COMMAND_H_
