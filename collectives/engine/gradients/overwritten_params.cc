// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/gradients/overwritten_params.h"

#include <fmt/format.h>

#include <utility>

namespace castor::internal {

Status OverwrittenParams::RequireNot(ParamId param) const {
  if (!progress_.params[param.index()].used) [[likely]] {
    return OkStatus();
  }
  return FailedPrecondition(fmt::format(
      "the gradient of {} is where the parameter was, until Step(): with "
      "gradients that reuse their place, a parameter is not used again after "
      "Grad(), and nothing is evaluated; take another gradient mode for that",
      model_.Name(param)));
}

void OverwrittenParams::Begin(ParamId param, std::byte* slot, Lane& lane) {
  ParamProgress& own = progress_.params[param.index()];
  if (std::exchange(own.overwritten, true)) return;
  const ChunkId chunk = model_.chunk_of(param);
  memory_.manager().WaitOn(lane, PlaceUnused(chunk), chunk,
                           RunCause::kGradient);
  Zero(param, slot, lane);
}

Event OverwrittenParams::ClearUnopened(ChunkId chunk, std::byte* slot) {
  Lane& lane = memory_.device_lane();
  bool waited = false;
  for (ParamId id : model_.layout->chunk(chunk).params) {
    if (std::exchange(progress_.params[id.index()].overwritten, false)) {
      continue;
    }
    if (!std::exchange(waited, true)) lane.Wait(PlaceUnused(chunk));
    Zero(id, slot, lane);
  }
  return waited ? lane.Record() : Event();
}

Event OverwrittenParams::PlaceUnused(ChunkId chunk) {
  return memory_.loses_home(chunk)
             ? memory_.store().WriteReady(chunk, StateKind::kParam)
             : memory_.manager().UsesDone(chunk);
}

void OverwrittenParams::Zero(ParamId param, std::byte* slot, Lane& lane) {
  const EngineParam& place = model_.param(param);
  memory_.device().Zero(
      lane, slot + place.offset.count(),
      BytesOf(place.size, model_.GradDType(model_.chunk_of(param))));
}

}  // namespace castor::internal
