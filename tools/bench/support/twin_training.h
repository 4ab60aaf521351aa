// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_BENCH_SUPPORT_TWIN_TRAINING_H_
#define CASTOR_TOOLS_BENCH_SUPPORT_TWIN_TRAINING_H_

// Engines that train on simulated devices and drives, each rank on one of its
// own, for comparisons with what a run without bytes
// (collectives/dry/dry_run.h) says of them. The trainer computes
// nothing: it holds parameters and gradients for as long as it is told to. On a
// counted clock every byte and every time is exact and repeatable; on the
// machine's, the engine's own work on the host takes the time that it takes.
// Pure function but for the files of the drives, thread-safe.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/dry/simulation_result.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "placement/tier_model.h"
#include "placement/trace/step_trace.h"

namespace castor {

enum class TwinClock : uint8_t {
  kCounted,  // offload/lanes/virtual_executor.h
  kMachine,  // offload/lanes/timer.h
};

struct TwinTraining {
  std::vector<ParamSpec> params;
  // Budgets, stage and so on; its collaborators are set by the call.
  ZeroOptions options;
  SealOptions seal;
  // Of it, links to devices and drives, and how fast the optimizer is; memory
  // is where the host's other passes take time.
  TierModel machine;
  std::optional<LinkModel> device_memory = {};  // empty: it takes no time
  TwinClock clock = TwinClock::kCounted;
  int world = 1;
  int steps = 4;
  int micro_batches = 1;
  SimTrainer trainer = SimTrainer::kStream;
  // Parameters that are held together, in the order of the forward sweep, each
  // in one unit; empty: every one by itself.
  std::vector<std::vector<ParamId>> units = {};
  // How long the trainer computes with a unit held, not negative; and as long
  // again with its gradients, where they are written over it.
  std::function<int64_t(size_t unit, bool backward)> compute_ns;
  // The gradient of one parameter is never handed back, and another has none in
  // the last of several micro-batches; -1: none.
  int left_open = -1;
  int skipped_last = -1;
  int unused = -1;  // this parameter has no gradient, though it is trained
  // Rank 0 has no gradient of this parameter in every other step, from the
  // second on, though others have; -1: it has all. REQUIRES: stages 0 to 2.
  int lacks = -1;
  // Tells the rate before the last micro-batch.
  bool updates_early = false;
  // On lease in every backward sweep.
  Bytes lease;
  // Before every step, and between the two sweeps of its first micro-batch, the
  // trainer evaluates: it goes through all units once, without gradients.
  bool evaluates = false;
  // In this step, from 0, the trainer leaves one unit out; -1: in none.
  int short_step = -1;
  size_t left_out = 0;
  // For how many further uses the lease of a forward use goes on, in a step
  // from 0. REQUIRES: own_lease_ends, gradients of their own, no evaluations.
  std::function<int(int step, size_t unit)> outlasts;
};

// What rank 0 saw.
struct TwinOutcome {
  Status status;
  std::vector<StepTrace> traces;  // by step, with compute times
  ChunkLayout layout{1, Elements(64), {}, {}, {}};
  EngineStats sealed;  // before the first step
  std::vector<EngineStats> after_step;
  // Since the first step began, when the trainer's lane got to a call of Step.
  std::vector<int64_t> step_end_ns;
  EngineStats stats;  // after that
};

TwinOutcome TrainOnTwins(const TwinTraining& training);

}  // namespace castor

#endif  // CASTOR_TOOLS_BENCH_SUPPORT_TWIN_TRAINING_H_
