// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_INPUT_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_INPUT_H_

// What `castor simulate` reads before it simulates: steps, layout and machine,
// as the request wants them. Reads files; thread-safe.

#include <vector>

#include "chunk/base/status.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/zero_options.h"
#include "placement/step_trace.h"
#include "placement/tier_model.h"
#include "tools/commands/simulate/simulate_command.h"
#include "tools/commands/simulate/simulate_flags.h"

namespace castor {

// What all points of a report have in common.
struct SimulateInput {
  StepTrace step;
  std::vector<StepTrace> then;
  std::vector<ParamSpec> params;
  ChunkLayout layout;
  ZeroOptions options;  // budgets aside
  SealOptions declared;
  TierModel machine;
};

// Fails as RunSimulate, and tells the report what was read.
Result<SimulateInput> ReadSimulateInput(const SimulateRequest& request,
                                        SimulateReport* report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_INPUT_H_
