// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ANSWERS_FORETELL_H_
#define CASTOR_COLLECTIVES_ANSWERS_FORETELL_H_

// The one door to what an engine and its steps would do before either exists:
// whether they fit, what Seal takes, the plan, what a step moves, and how long
// it takes on a machine. `castor plan`, `castor simulate`, the simulations of
// `castor report` and castor_plan_run ask here. Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/answers/plan_file.h"
#include "collectives/answers/seal_forecast.h"
#include "collectives/answers/step_times.h"
#include "collectives/zero_options.h"
#include "placement/simulation/simulation_result.h"
#include "placement/tier_model.h"
#include "placement/trace/step_trace.h"

namespace castor {

// The most ranks and micro-batches that a plan is made for.
inline constexpr int64_t kMostPlannedRanks = 1 << 20;
inline constexpr int64_t kMostPlannedMicroBatches = 1 << 20;

// On which machine, and how a rank computes there.
struct ForetoldMachine {
  TierModel speeds;        // of the whole machine
  int ranks_per_host = 1;  // that share it
  SimTrainer trainer = SimTrainer::kStream;
  // The device's memory, for the engine's kernels; empty: they take no time.
  std::optional<LinkModel> device_memory = {};
  // Nothing is simulated where the machine does not know a speed that the step
  // needs; else what is unknown takes no time.
  bool needs_all = false;
};

struct ForetellRequest {
  EngineRequest engine;
  // Of the engine's options (layout_choice.h). Outlives the call.
  const ChunkLayout* layout = nullptr;
  // Made one after the other, which tells the trainer's habits too: whether it
  // updates early, evaluates, and where its leases end. The plan is for the
  // first of them. At least one; they outlive the call.
  std::vector<const StepTrace*> steps;
  // The first step follows its plan, as if another like it had come before;
  // else it is served on demand.
  bool begins_planned = false;
  std::optional<ForetoldMachine> machine = {};  // empty: times are unknown
};

struct Foretold {
  Status fits;  // or Infeasible, and why
  // Where the engine and its first step fit.
  std::optional<SealForecast> seal;
  std::optional<StepForecast> forecast;  // of the first step
  StepTimes times;                       // of it
  // Of all steps, where a machine was given.
  std::optional<SimulationResult> simulated;
};

// Fails as ForecastSeal and Simulate do, but that Infeasible is an answer.
Result<Foretold> Foretell(const ForetellRequest& request);

// For trainers to load. `model` is what people call it; `processes`: each rank
// is one. Files that the options were read from are for the caller to add.
PlanFile PlanFileOf(const EngineRequest& request, const std::string& model,
                    bool processes);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ANSWERS_FORETELL_H_
