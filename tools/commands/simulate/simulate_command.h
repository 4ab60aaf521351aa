// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_COMMAND_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_SIMULATE_COMMAND_H_

// `castor simulate TRACE`: reads a trace and a machine, or the record of a run,
// which holds both, and simulates steps, at
// one budget, or at every one of a sweep; how long they take under another
// budget, machine or policy, and why. Owner thread only.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "collectives/answers/seal_forecast.h"
#include "collectives/dry/simulation_result.h"
#include "collectives/zero_config.h"
#include "collectives/zero_options.h"
#include "placement/policy/fetch_forecast.h"
#include "placement/tier_model.h"
#include "placement/trace/step_trace.h"
#include "placement/trace/trace_file.h"
#include "tools/cli/console.h"
#include "tools/cli/text/document.h"

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

// What a record brings in place of files.
struct RecordedRun {
  TraceFile trace;  // with compute times
  LayoutFile layout;
  TierModel machine;  // a rank's share of it
  int32_t step = 0;   // that is simulated
  int64_t measured_ns = 0;
  int64_t simulated_ns = 0;  // of it as it was; 0: it does not fit then
  Status completeness;       // the record's
};

struct SimulateFlags {
  SimulateFlags() { engine.clip_norm = 1; }

  std::string trace_file;
  std::shared_ptr<const RecordedRun> recorded;  // empty: of the files
  EngineFiles files;  // no layout: a parameter for each chunk
  // As far as neither the trace nor what is below says. It clips.
  ZeroOptions engine;
  std::optional<Bytes> device_budget;  // of one rank; empty: it is swept
  std::optional<Bytes> host_budget;
  std::optional<Bytes> nvme_budget;             // empty: there is no NVMe
  std::optional<DType> dtype;                   // of parameters; as recorded
  std::optional<int> shard_group;               // empty: as recorded
  std::optional<OptimizerSpan> optimizer_span;  // the same
  std::optional<int> ranks;                     // the same
  int ranks_per_host = 1;
  std::optional<int64_t> compute_ns;       // of a step; empty: as recorded
  int64_t evaluations = 0;                 // before every step
  std::optional<LinkModel> device_memory;  // its speed; empty: it is instant
  SimTrainer trainer = SimTrainer::kStream;
  std::vector<std::string> then;  // files of steps that depart from the trace
  std::string sweep;              // "device-budget=2GiB..24GiB"
  int64_t points = 12;            // of a sweep
  std::string svg;                // where the plot goes; empty: nowhere
  bool json = false;
  bool plain = false;

  std::string_view swept_budget() const {
    return device_budget ? "host-budget" : "device-budget";
  }
};

// `flags` outlives `app`.
void DeclareSimulateFlags(CLI::App& app, SimulateFlags* flags);

// The budgets of a sweep, rising; none without one. InvalidArgument with a
// sentence for what makes no sense for any trace.
Result<std::vector<Bytes>> CheckSimulateFlags(const SimulateFlags& flags);

// One engine, and its steps.
struct SimulatedPoint {
  Bytes device_budget;
  Bytes host_budget;
  // Empty where the step does not fit; `why` then says so, with numbers.
  std::optional<SimulationResult> result;
  std::string why;
  std::optional<SealForecast> seal;  // where it fits
  // By deadlines, if these were asked for; empty where times are unknown, which
  // the sentence says.
  std::optional<FetchForecast> fetches;
  std::string prefetch;
  // The steps of --then, one each, and two of the trace behind them.
  std::vector<SimulatedStep> then;

  bool fits() const { return result.has_value(); }
};

struct SimulateReport {
  SimulateFlags flags;
  TraceFile trace;  // as it was recorded
  // What all points have in common.
  int ranks = 1;
  StepTrace step;  // as the engine that is asked for makes it
  std::vector<StepTrace> then;
  std::vector<ParamSpec> params;
  ChunkLayout layout{1, Elements(64), {}, {}, {}};
  ZeroOptions options;  // budgets aside
  SealOptions declared;
  TierModel machine;                   // a rank's share of it
  std::vector<SimulatedPoint> points;  // of a sweep, or the one
};

// Where `trace_file` is the record of a run, the flags with what the run was;
// those that `given` accepts stay as they are. FailedPrecondition where the
// record lacks what a simulation needs.
Result<SimulateFlags> WithRecord(
    SimulateFlags flags, const std::function<bool(std::string_view)>& given);

// Malformed for a file that is none; InvalidArgument for flags, limits, rules,
// layouts and other steps that make no sense or are not for the trace;
// Infeasible, with what would make it fit, where no point does.
Result<SimulateReport> RunSimulate(const SimulateFlags& flags,
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
