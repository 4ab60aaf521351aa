// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Gradients that are written over parameters (GradMode::kReuse). A gathered
// copy is one of many: the shards at home are what they were, and a copy that
// was written over is dropped. A home that is used in place is the only one:
// the update writes it from the masters, and so does RestoreHome where there is
// no update.

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "collectives/engine/zero_engine_impl.h"
#include "offload/kernels/convert.h"

namespace castor {

using internal::HomePass;
using internal::StateBytes;

Status ZeroEngine::Impl::RequireNotOverwritten(ParamId param) const {
  if (!params_[param.index()].used) [[likely]] {
    return OkStatus();
  }
  return FailedPrecondition(fmt::format(
      "the gradient of {} is where the parameter was, until Step(): with "
      "gradients that reuse their place, a parameter is not used again after "
      "Grad(), and nothing is evaluated; take another gradient mode for that",
      Name(param)));
}

Status ZeroEngine::Impl::RequireOneMicroBatch(bool last) const {
  if (!grads_in_place() || last) return OkStatus();
  return FailedPrecondition(
      "gradients that reuse the place of parameters cannot be added up over "
      "micro-batches, which need the parameters again: make it the last, or "
      "take another gradient mode");
}

Event ZeroEngine::Impl::PlaceUnused(ChunkId chunk) {
  return LosesHome(chunk) ? store_->WriteReady(chunk, StateKind::kParam)
                          : manager_->UsesDone(chunk);
}

void ZeroEngine::Impl::BeginOverwriting(ParamId param, Lane& lane) {
  const ChunkId chunk = layout_->place(param).chunk;
  params_[param.index()].overwritten = true;
  manager_->WaitOn(lane, PlaceUnused(chunk), chunk, RunCause::kGradient);
  pools_->device().Zero(
      lane,
      grads_[chunk.index()].slot.data + params_[param.index()].offset.count(),
      BytesOf(params_[param.index()].size, GradDType(chunk)));
}

Event ZeroEngine::Impl::ClearUnopened(ChunkId chunk) {
  Event cleared;
  bool waited = false;
  for (ParamId id : layout_->chunk(chunk).params) {
    if (std::exchange(params_[id.index()].overwritten, false)) continue;
    if (!std::exchange(waited, true)) device_lane_->Wait(PlaceUnused(chunk));
    pools_->device().Zero(
        *device_lane_,
        grads_[chunk.index()].slot.data + params_[id.index()].offset.count(),
        BytesOf(params_[id.index()].size, GradDType(chunk)));
  }
  return waited ? device_lane_->Record() : Event();
}

void ZeroEngine::Impl::RestoreLostHomes() {
  for (size_t c = 0; c < grads_.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    if (grads_[c].valid && LosesHome(chunk)) RestoreHome(chunk);
  }
}

void ZeroEngine::Impl::RestoreHome(ChunkId chunk) {
  const DType dtype = layout_->dtype(chunk);
  HomePass pass;
  pass.chunk = chunk;
  pass.range = sharding_.updated(*layout_, chunk);
  pass.cause = RunCause::kOptimizer;
  pass.uses = {{StateKind::kMaster, WindowMode::kRead},
               {StateKind::kParam, WindowMode::kWrite}};
  pass.on_device = [&, range = pass.range](const StateBytes& at) {
    pools_->device().Convert(*device_lane_, at.of(StateKind::kMaster),
                             DType::kF32, at.of(StateKind::kParam), dtype,
                             range.end - range.begin);
  };
  pass.on_host = [&](ShardRange part) {
    return HomePass::HostWork{
        RangeBytes(chunk, StateKind::kMaster, part).size() +
            RangeBytes(chunk, StateKind::kParam, part).size(),
        [dtype, part](const StateBytes& at) {
          ConvertFromFloat(
              reinterpret_cast<const float*>(at.of(StateKind::kMaster)),
              (part.end - part.begin).count(), dtype, at.of(StateKind::kParam));
        }};
  };
  RunAtHome(std::move(pass));
  if (sharding_.refreshes()) RefreshReplicas(chunk);
}

}  // namespace castor
