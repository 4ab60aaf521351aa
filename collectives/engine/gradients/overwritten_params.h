// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_OVERWRITTEN_PARAMS_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_OVERWRITTEN_PARAMS_H_

// Part of GradientReducer (gradient_reducer.h).
//
// Gradients that are written over parameters (GradMode::kReuse). A gathered
// copy is one of many: the shards at home are what they were, and a copy that
// was written over is dropped. A home that is used in place is the only one:
// the update writes it from the masters, and OptimizerPass::RestoreHome does so
// where there is no update. Owner thread only.

#include <cstddef>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/engine/engine_model.h"
#include "collectives/engine/engine_progress.h"
#include "collectives/engine/memory/engine_memory.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"

namespace castor::internal {

class OverwrittenParams {
 public:
  OverwrittenParams(const EngineModel& model, EngineMemory& memory,
                    StepProgress& progress)
      : model_(model), memory_(memory), progress_(progress) {}

  // FailedPrecondition where a gradient lies over the parameter.
  Status RequireNot(ParamId param) const;
  // Has `lane` make zero of a parameter that nobody uses any more. `slot`: of
  // the chunk's gradient.
  void Begin(ParamId param, std::byte* slot, Lane& lane);
  // Makes zero of gradients that nobody opened; when that is done.
  Event ClearUnopened(ChunkId chunk, std::byte* slot);

 private:
  // When nobody uses the place of the chunk's gradient any more.
  Event PlaceUnused(ChunkId chunk);
  // Queues zeros over the parameter.
  void Zero(ParamId param, std::byte* slot, Lane& lane);

  const EngineModel& model_;
  EngineMemory& memory_;
  StepProgress& progress_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_GRADIENTS_OVERWRITTEN_PARAMS_H_
