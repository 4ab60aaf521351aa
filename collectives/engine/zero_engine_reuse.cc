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
  const StateKind kind = StateKind::kParam;
  const DType dtype = layout_->dtype(chunk);
  const ShardRange range = sharding_.updated(*layout_, chunk);
  const Elements count = range.end - range.begin;
  const ByteRange own = RangeBytes(chunk, kind, range);
  const ByteRange masters = RangeBytes(chunk, StateKind::kMaster, range);
  if (store_->home(chunk, StateKind::kMaster) == Tier::kDevice) {
    device_lane_->Wait(store_->written(chunk, StateKind::kMaster));
    device_lane_->Wait(store_->WriteReady(chunk, kind));
    pools_->device().Convert(
        *device_lane_,
        store_->device_data(chunk, StateKind::kMaster) + masters.begin.count(),
        DType::kF32, store_->device_data(chunk, kind) + own.begin.count(),
        dtype, count);
    const Event restored = device_lane_->Record();
    store_->AddReader(chunk, StateKind::kMaster, restored);
    store_->SetWritten(chunk, kind, restored);
  } else {
    for (const ShardRange& part : WithinPieces(chunk, range)) {
      RestoreOnHost(chunk, part);
    }
  }
  if (sharding_.refreshes()) RefreshReplicas(chunk);
}

void ZeroEngine::Impl::RestoreOnHost(ChunkId chunk, ShardRange range) {
  const StateKind kind = StateKind::kParam;
  WindowRequest requests[2];
  for (WindowRequest& request : requests) {
    request.chunk = chunk;
    request.cause = RunCause::kOptimizer;
  }
  requests[0].state = StateKind::kMaster;
  requests[0].range = RangeBytes(chunk, StateKind::kMaster, range);
  requests[0].mode = WindowMode::kRead;
  requests[1].state = kind;
  requests[1].range = RangeBytes(chunk, kind, range);
  requests[1].mode = WindowMode::kWrite;
  Result<std::vector<HostWindow>> opened = store_->OpenWindows(requests);
  if (!opened.ok()) {
    Fail(opened.status()).IgnoreError();  // the next call returns it
    return;
  }
  for (const HostWindow& window : *opened) host_lane_->Wait(window.ready);
  QueuePass(chunk, HostPass::kMemory,
            requests[0].range.size() + requests[1].range.size(),
            [master = opened->front().bytes(), param = opened->back().bytes(),
             dtype = layout_->dtype(chunk),
             count = (range.end - range.begin).count()] {
              ConvertFromFloat(reinterpret_cast<const float*>(master.get()),
                               count, dtype, param.get());
              return OkStatus();
            });
  const Event restored = host_lane_->Record();
  for (HostWindow& window : *opened) {
    store_->CloseWindow(std::move(window), restored);
  }
}

}  // namespace castor
