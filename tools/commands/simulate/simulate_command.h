// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_COMMAND_H_

// `castor simulate TRACE`: reads a trace and a machine and simulates steps, at
// one budget, or at every one of a sweep; how long they take under another
// budget, machine or policy, and why. Owner thread only.

#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/zero_options.h"
#include "placement/fetch_forecast.h"
#include "placement/simulated_engine.h"
#include "placement/simulation_result.h"
#include "tools/cli/console.h"
#include "tools/cli/document.h"
#include "tools/commands/simulate/simulate_flags.h"

namespace castor {

// One engine, and its steps.
struct SimulatedPoint {
  Bytes device_budget;
  Bytes host_budget;
  // Empty where the step does not fit; `why` then says so, with numbers.
  std::optional<SimulationResult> result;
  std::string why;
  SimulatedEngine engine;  // where it fits
  // By deadlines, if these were asked for; empty where times are unknown, which
  // `lacked` says.
  std::optional<FetchForecast> fetches;
  std::string lacked;
  // The steps of request.then, one each, and two of the trace behind them.
  std::vector<SimulatedStep> then;
};

struct SimulateReport {
  SimulateRequest request;
  int64_t chunks = 0;
  int64_t moments = 0;
  std::string dtypes;          // of parameters: "F32", "BF16 and F32"
  bool dtype_assumed = false;  // nothing says of which type they are
  int recorded_ranks = 1;
  int ranks = 1;
  int shard_group = 0;  // ranks that share one set of shards; 0: all
  OptimizerSpan optimizer_span = OptimizerSpan::kGroup;
  int64_t compute_ns = 0;              // of a step
  int64_t evaluations = 0;             // of a step
  std::vector<std::string> unknown;    // of the machine, that steps would use
  std::vector<SimulatedPoint> points;  // of a sweep, or the one
};

// Malformed for a file that is none; InvalidArgument for limits, rules, layouts
// and other steps that are not for the trace; Infeasible, with what would make
// it fit, where no point does.
Result<SimulateReport> RunSimulate(const SimulateRequest& request,
                                   const Console& console);

// What is printed: of one point all that is known, of a sweep a row for each.
Document SimulateDocument(const SimulateReport& report);

// A sweep as a plot: step time against budget, of what it is made, and where
// the step does not fit. One SVG document that needs nothing else, for light
// and dark pages; every point says its numbers when pointed at. REQUIRES: a
// sweep of which some point has a result.
std::string SweepSvg(const SimulateReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_COMMAND_H_
