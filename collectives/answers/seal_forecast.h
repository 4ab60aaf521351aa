// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ANSWERS_SEAL_FORECAST_H_
#define CASTOR_COLLECTIVES_ANSWERS_SEAL_FORECAST_H_

// What Seal of a ZeroEngine would take of a rank's tiers, before the engine
// exists, by the functions with which Seal decides (seal_plan.h). The forecast
// takes no memory of any tier and starts no thread. Part of what is foretold
// (foretell.h). Values and pure functions, thread-safe.

#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/memory/byte_classes.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/memory/sharding.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/zero_options.h"
#include "placement/placement_rules.h"

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

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ANSWERS_SEAL_FORECAST_H_
