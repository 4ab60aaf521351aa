// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ANSWERS_ENGINE_PLAN_H_
#define CASTOR_COLLECTIVES_ANSWERS_ENGINE_PLAN_H_

// Plans an engine and its steps before either exists: whether they fit, what
// they hold and move, and the file that a trainer follows. `castor plan` and
// castor_plan_run are both made of this. Pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/answers/plan_file.h"
#include "collectives/answers/seal_forecast.h"
#include "collectives/zero_options.h"
#include "placement/trace/step_trace.h"

namespace castor {

// The most ranks and micro-batches that a plan is made for.
inline constexpr int64_t kMostPlannedRanks = 1 << 20;
inline constexpr int64_t kMostPlannedMicroBatches = 1 << 20;

struct EnginePlan {
  Status fits;  // or Infeasible, and why
  // Where it fits.
  std::optional<SealForecast> seal;
  std::optional<StepForecast> forecast;
};

// With steps like `step` and a layout of the request's options. Fails as
// ForecastSeal does, but that Infeasible is an answer.
Result<EnginePlan> PlanEngine(const EngineRequest& request,
                              const ChunkLayout& layout, const StepTrace& step);

// For trainers to load. `model` is what people call it; `processes`: each rank
// is one. Files that the options were read from are for the caller to add.
PlanFile PlanFileOf(const EngineRequest& request, const std::string& model,
                    bool processes);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ANSWERS_ENGINE_PLAN_H_
