// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_DRY_DRY_RUN_H_
#define CASTOR_COLLECTIVES_DRY_DRY_RUN_H_

// Runs an engine without bytes through steps, from the first one on: what every
// link carries, how much of each tier is in use at most, who waits for what,
// and how long a step takes. The engine is the one that trains
// (collectives/zero_engine.h), in a dry world (dry_world.h), with a trainer
// that replays traces (step_replay.h). So bytes and peaks are those of a run,
// to the byte, and times those of a run whose links have declared speeds.
//
// Not modelled: the host's own calls, which take no time; ranks that are not
// alike, but for the first and the last to come to a collective; links and
// drives that ranks share (give each rank its part: ShareOfMachine).
//
// Deterministic: no clock is read, and the same input gives the same result.
// Pure functions, thread-safe.

#include <optional>
#include <span>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/dry/simulation_result.h"
#include "collectives/zero_options.h"
#include "placement/plan.h"
#include "placement/tier_model.h"
#include "placement/trace/step_trace.h"

namespace castor {

struct DryRunRequest {
  // Everything that is pointed to outlives the call.
  std::span<const ParamSpec> params;
  // As given to ZeroEngine::Create; collaborators are not asked for anything.
  ZeroOptions options;
  SealOptions declared;
  int world = 1;
  int rank = 0;
  Bytes communicator_buffers;
  const ChunkLayout* layout = nullptr;  // that Seal would choose
  // Made one after the other; the first one is served on demand, unless the
  // step is planned at Seal, as if it had come before. At least one.
  std::span<const StepTrace* const> steps;
  bool planned_at_seal = false;
  const Plan* plan = nullptr;  // of the first step; null: it is not known
  // A rank's share; empty: nothing takes time, computing neither.
  std::optional<TierModel> machine;
  SimTrainer trainer = SimTrainer::kStream;
  // The device's memory, for the engine's kernels; empty: they take no time.
  std::optional<LinkModel> device_memory;
  // Where a machine is given: DryWorldOptions has it.
  Bytes nvme_piece = MiB(1);
};

// Fails as the engine's calls do: Infeasible where a step holds more at once
// than there are slots. InvalidArgument where a trace is no step of these
// chunks.
Result<SimulationResult> DryRun(const DryRunRequest& request);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_DRY_DRY_RUN_H_
