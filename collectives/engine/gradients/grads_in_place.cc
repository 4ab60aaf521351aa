// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Gradients that are written over parameters (GradMode::kReuse). A gathered
// copy is one of many: the shards at home are what they were, and a copy that
// was written over is dropped. A home that is used in place is the only one:
// the update writes it from the masters, and so does RestoreHome where there is
// no update.

#include <fmt/format.h>

#include <utility>

#include "collectives/engine/gradients/gradient_reducer.h"

namespace castor::internal {

Status GradientReducer::RequireNotOverwritten(ParamId param) const {
  if (!progress_.params[param.index()].used) [[likely]] {
    return OkStatus();
  }
  return FailedPrecondition(fmt::format(
      "the gradient of {} is where the parameter was, until Step(): with "
      "gradients that reuse their place, a parameter is not used again after "
      "Grad(), and nothing is evaluated; take another gradient mode for that",
      model_.Name(param)));
}

void GradientReducer::BeginOverwriting(ParamId param, Lane& lane) {
  const ChunkId chunk = model_.chunk_of(param);
  progress_.params[param.index()].overwritten = true;
  WaitOn(lane, PlaceUnused(chunk), chunk);
  memory_.device().Zero(
      lane,
      grads_[chunk.index()].slot.data +
          model_.params[param.index()].offset.count(),
      BytesOf(model_.params[param.index()].size, model_.GradDType(chunk)));
}

Event GradientReducer::ClearUnopened(ChunkId chunk) {
  bool waited = false;
  for (ParamId id : model_.layout->chunk(chunk).params) {
    if (std::exchange(progress_.params[id.index()].overwritten, false))
      continue;
    if (!std::exchange(waited, true))
      memory_.device_lane().Wait(PlaceUnused(chunk));
    memory_.device().Zero(
        memory_.device_lane(),
        grads_[chunk.index()].slot.data +
            model_.params[id.index()].offset.count(),
        BytesOf(model_.params[id.index()].size, model_.GradDType(chunk)));
  }
  return waited ? memory_.device_lane().Record() : Event();
}

void GradientReducer::RestoreLostHomes() {
  for (const ChunkId chunk : valid()) {
    if (memory_.loses_home(chunk)) optimizer_.RestoreHome(chunk);
  }
}

}  // namespace castor::internal
