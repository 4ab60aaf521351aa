// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_ENGINE_PROGRESS_H_
#define CASTOR_COLLECTIVES_ENGINE_ENGINE_PROGRESS_H_

// Where a training is: the step that is made, and the numbers that a checkpoint
// keeps besides states. Values; who writes each is said beside it. All parts of
// the engine (zero_engine_parts.h) read the step.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "chunk/layout/chunk_state.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "offload/lane.h"
#include "offload/lanes/pick_queue.h"

namespace castor::internal {

// What the step that is made does with a parameter: GradientReducer writes it,
// StateValues and the agreement of ranks what counts as used, leases `held`.
struct ParamProgress {
  bool used = false;      // had a gradient since the last step
  bool had_grad = false;  // in the step that ended last, on this rank
  // Its gradient is where it was, in the open gradient of its chunk.
  bool overwritten = false;
  std::byte* borrowed = nullptr;  // its gradient, in the trainer's memory
  int32_t held = 0;               // leases of it, with GradMode::kReuse
  ParamState state = ParamState::kIdle;  // of its gradient, this micro-batch
};

enum class EnginePhase : uint8_t { kOpen, kSealed, kClosed };

// The engine's calls write it; StateOffloader says whether it is parked.
struct StepProgress {
  EnginePhase phase = EnginePhase::kOpen;
  bool parked = false;
  int64_t steps = 0;          // made
  int64_t micro_batches = 0;  // of the step being made; 0: none is
  bool last_micro_batch = false;
  int evaluating = 0;
  int64_t begin_ns = 0;
  int64_t ending_moment = -1;              // the last one of a step that ends
  std::vector<ParamProgress> params = {};  // by ParamId

  // As records and managers count them, from 1.
  int32_t number() const { return static_cast<int32_t>(steps + 1); }
};

// Step and checkpoints write them; OptimizerPass counts updates.
struct TrainingScalars {
  LossScaler scaler;
  OptimizerGroups groups;
  std::vector<int64_t> updates = {};  // by ParamId
};

// Updates in host memory take turns on these: one begins while the last ranges
// of another end.
inline constexpr size_t kUpdateLanes = 2;

// Queues of an engine besides that of its device. Reductions, which wait for
// gradients to be computed, have a lane of their own: a gather that was called
// after one need not wait for it. Both are called in one order on all ranks.
struct EngineLanes {
  std::unique_ptr<Lane> comm;
  std::unique_ptr<Lane> reduce;
  std::unique_ptr<Lane> host;
  std::array<std::unique_ptr<Lane>, kUpdateLanes> update;
  // The most urgent update has the turn, on the lane of that number.
  PickQueue<size_t> updates;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_ENGINE_PROGRESS_H_
