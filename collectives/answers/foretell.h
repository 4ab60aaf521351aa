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
#include "collectives/dry/simulation_result.h"
#include "collectives/zero_options.h"
#include "placement/planner/step_planner.h"
#include "placement/policy/fetch_forecast.h"
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
  // A run is not timed where the machine does not know a speed that the last
  // step needs; else what is unknown takes no time.
  bool needs_all = false;
};

struct ForetellRequest {
  EngineRequest engine;
  // Of the engine's options (layout_choice.h). Outlives the call.
  const ChunkLayout* layout = nullptr;
  // Made one after the other, which tells the trainer's habits too: whether it
  // updates early, evaluates, and where its leases end. The first one is served
  // on demand, and the plan is made of it. At least one; they outlive the call.
  std::vector<const StepTrace*> steps;
  std::optional<ForetoldMachine> machine = {};  // empty: times are unknown
  // Without times, the last step alone is made, planned as if it had come
  // before: half of the work, for who asks for no peak of a first step.
  bool steady_only = false;
};

// The engine's plan of a step, and what follows from the plan alone.
struct StepForecast {
  StepPlan plan;
  // When its fetches are there; empty where links or times are unknown.
  std::optional<FetchForecast> fetches;
  double fetch_cost = 0;  // in the unit of its certificate
  // Gathered slots that hold copies of shards, and of how many at most.
  int64_t shard_slots = 0;
  int64_t shards = 0;
};

struct Foretold {
  // Or Infeasible; or FailedPrecondition, where no budget helps: with these
  // options the engine refuses the step, such as a use of what is updated.
  Status fits;
  // The rest is there where the engine and its steps fit.
  std::optional<SealForecast> seal;
  std::optional<StepForecast> forecast;  // of the first step
  // All steps: what they move, and the most bytes in use at one time from Seal
  // on. That is less of the device than Seal takes where gathered slots are
  // never all in use.
  std::optional<SimulationResult> run;
  StepTimes times;  // of the last step
  // The run tells how long steps take, too.
  bool timed = false;
};

// Fails as ForecastSeal and DryRun do, but that these two are answers.
Result<Foretold> Foretell(const ForetellRequest& request);

// For trainers to load. `model` is what people call it; `processes`: each rank
// is one. Files that the options were read from are for the caller to add.
PlanFile PlanFileOf(const EngineRequest& request, const std::string& model,
                    bool processes);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ANSWERS_FORETELL_H_
