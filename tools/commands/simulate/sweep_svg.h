// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_SWEEP_SVG_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_SWEEP_SVG_H_

// A sweep as a plot: step time against budget, of what it is made, and where
// the step does not fit. One SVG document that needs nothing else, for light
// and dark pages; every point says its numbers when pointed at. Pure function,
// thread-safe.
// Part of castor simulate (simulate_command.h).

#include <string>

#include "tools/commands/simulate/simulate_run.h"

namespace castor {

// REQUIRES: a sweep of which some point has a result.
std::string SweepSvg(const SimulateReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_SWEEP_SVG_H_
