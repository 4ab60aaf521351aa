// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_TEXT_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_TEXT_H_

// What `castor simulate` prints for people, and for grep and awk. Pure
// functions, thread-safe.

#include <string>

#include "tools/cli/text_table.h"
#include "tools/commands/simulate/simulate_run.h"

namespace castor {

// REQUIRES, both: some point has a result.
std::string SimulateText(const SimulateReport& report, Emphasis emphasis);
// A line of titles that begins with #, then one for each point.
std::string SimulatePlain(const SimulateReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_TEXT_H_
