// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_TEXT_COMMAND_TEXT_H_
#define CASTOR_TOOLS_CLI_TEXT_COMMAND_TEXT_H_

// A command line that does again what flags asked for, to be printed. Pure
// functions, thread-safe.

#include <string>

#include "collectives/options/option_table.h"

namespace castor {

// The flags of `table` whose values are others than in `usual`, a space before
// each. REQUIRES: both have the same flags.
std::string GivenFlagsText(const OptionTable& table, OptionTable usual);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_TEXT_COMMAND_TEXT_H_
