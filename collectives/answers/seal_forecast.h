// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ANSWERS_SEAL_FORECAST_H_
#define CASTOR_COLLECTIVES_ANSWERS_SEAL_FORECAST_H_

// What a ZeroEngine would take of a rank's tiers and move in a step, before
// there is one: by the functions with which Seal decides (seal_plan.h), the
// policy plans (placement/planner/step_planner.h) and the memory manager moves
// (placement/simulation/copy_replay.h), on a step that is derived or was
// recorded. No memory of any tier is taken, no thread started. Values and pure
// functions, thread-safe.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/answers/step_traffic.h"
#include "collectives/memory/byte_classes.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/memory/sharding.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/zero_options.h"
#include "placement/placement_rules.h"
#include "placement/plan.h"
#include "placement/planner/step_planner.h"
#include "placement/policy/fetch_forecast.h"
#include "placement/trace/step_trace.h"

namespace castor {

struct EngineRequest {
  std::span<const ParamSpec> params;  // as they are registered, in order
  // As given to ZeroEngine::Create; collaborators are not asked for anything.
  ZeroOptions options;
  int world = 1;
  int rank = 0;
  Bytes communicator_buffers;
  SealOptions declared;
};

struct SealForecast {
  Sharding sharding;
  SealBudgets budgets;
  ChunkLayout layout;
  MemoryPlan memory;
  ByteTable table;                      // what Seal takes
  std::vector<ChunkBindings> bindings;  // by rules; empty: there are none
};

// Fails as ZeroEngine's Create, Register and Seal do, with their messages.
Result<SealForecast> ForecastSeal(const EngineRequest& request);
// The same with a layout that is there already. REQUIRES: it is of these
// options (layout_choice.h).
Result<SealForecast> ForecastSeal(const EngineRequest& request,
                                  ChunkLayout layout);

struct StepForecast {
  StepPlan plan;
  // When its fetches are there; empty where links or times are unknown.
  std::optional<FetchForecast> fetches;
  double fetch_cost = 0;  // of the plan, in the unit of its certificate
  // Of a step when those before it were the same, the first two aside: gathers
  // by ChunkId, and all that it moves.
  std::vector<int64_t> gathers;
  std::vector<int64_t> loads;  // of its home, for these and copies of its shard
  StepTraffic traffic;
  // Gathered slots that hold copies of shards, and of how many at most.
  int64_t shard_slots = 0;
  int64_t shards = 0;
  // Most bytes in use at one time, by TierIndex, from Seal on: of the device
  // less than Seal takes where gathered slots are never all in use.
  std::array<Bytes, 3> peak;
};

// Fails as Step does when it plans the next one: Infeasible where the step
// holds more at once than was declared.
Result<StepForecast> ForecastStep(const SealForecast& seal,
                                  const ZeroOptions& options,
                                  const StepTrace& step);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ANSWERS_SEAL_FORECAST_H_
