// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_COMMAND_H_

// `castor search MODEL`: which chunk size wastes least for a model, with the
// proof. Owner thread only.

#include <memory>

#include "tools/cli/command.h"

namespace castor {

std::unique_ptr<Command> MakeSearchCommand();

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_COMMAND_H_
