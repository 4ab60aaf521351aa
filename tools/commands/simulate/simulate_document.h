// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_DOCUMENT_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_DOCUMENT_H_

// What `castor simulate` prints: of one point all that is known, of a sweep a
// row for each. Pure function, thread-safe.
// Part of castor simulate (simulate_command.h).

#include "tools/cli/document.h"
#include "tools/commands/simulate/simulate_run.h"

namespace castor {

Document SimulateDocument(const SimulateReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_DOCUMENT_H_
