// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/engine/update_work.h"
#include "collectives/engine/zero_engine_impl.h"
#include "offload/kernels/optimizer.h"
#include "offload/worker_pool.h"
#include "placement/trace.h"
#include "placement/trace/use_order.h"

namespace castor {

using internal::HomePass;
using internal::StateBytes;

internal::UpdateWork ZeroEngine::Impl::MakeWork(ChunkId chunk, ShardRange range,
                                                float factor, double lr) const {
  internal::UpdateWork work;
  work.factor = factor;
  work.dtype = layout_->dtype(chunk);
  work.grad_dtype = GradDType(chunk);
  work.elements = (range.end - range.begin).count();
  work.moment_dtype = options_.optimizer.moment_dtype;
  work.program = program_update_;
  for (const Segment& segment : Segments(chunk, range)) {
    const Param& param = params_[segment.param.index()];
    internal::UpdateWork::Piece piece;
    piece.segment = segment;
    piece.update = param.used;
    piece.cuts = !param.spec.whole;
    piece.step = param.steps;
    if (program_update_ != nullptr) {
      piece.lr = groups_.RateOf(param.group, lr);
    } else if (param.used) {
      const OptimizerOptions optimizer = groups_.OptionsOf(param.group, lr);
      piece.scalars = ComputeOptimizerScalars(optimizer, param.steps);
      piece.rounding = MakeMomentRounding(optimizer, segment.param.index(),
                                          param.steps, segment.begin);
    }
    work.pieces.push_back(piece);
  }
  return work;
}

std::vector<ChunkId> ZeroEngine::Impl::UpdateOrder() const {
  return OrderOfFirstUses(
      sharding_.refreshes() ? Trace() : manager_->planned_trace(),
      grads_.size());
}

Event ZeroEngine::Impl::UpdateChunk(ChunkId chunk, float factor, double lr,
                                    const internal::PassingGrad* passing) {
  HomePass pass;
  pass.chunk = chunk;
  pass.range = sharding_.updated(*layout_, chunk);
  pass.cause = RunCause::kOptimizer;
  pass.kind = HostPass::kUpdate;
  pass.passing = passing;
  const auto use = [&](StateKind state, WindowMode mode) {
    if (store_->has(chunk, state)) pass.uses.push_back({state, mode});
  };
  if (passing == nullptr) use(StateKind::kGrad, WindowMode::kRead);
  use(StateKind::kParam, store_->has(chunk, StateKind::kMaster)
                             ? WindowMode::kWrite
                             : WindowMode::kReadWrite);
  use(StateKind::kMaster, WindowMode::kReadWrite);
  for (int i = 0; i < kMaxOptimizerStates; ++i) {
    use(OptimizerState(i), WindowMode::kReadWrite);
  }
  pass.on_device = [&, range = pass.range](const StateBytes& at) {
    internal::UpdateWork work = MakeWork(chunk, range, factor, lr);
    work.Place(at);
    work.Queue(pools_->device(), *device_lane_, LosesHome(chunk));
  };
  pass.on_host = [&](ShardRange part) {
    return HomePass::HostWork{
        UpdateBytes(sharding_.update_pass(GroupOf(chunk)),
                    part.end - part.begin),
        [work = MakeWork(chunk, part, factor, lr),
         workers = Workers()](const StateBytes& at) mutable {
          work.Place(at);
          work.Run(*workers);
        }};
  };
  return RunAtHome(std::move(pass));
}

bool ZeroEngine::Impl::MayUpdateNow(ChunkId chunk) const {
  const std::vector<ParamId>& params = layout_->chunk(chunk).params;
  // A lease of the home itself is read until its end.
  return held_in_place_[chunk.index()] == 0 &&
         std::all_of(params.begin(), params.end(),
                     [&](ParamId id) { return params_[id.index()].used; });
}

void ZeroEngine::Impl::CountEarlyUpdate(ChunkId chunk) {
  for (ParamId id : layout_->chunk(chunk).params) ++params_[id.index()].steps;
  grads_[chunk.index()].updated = true;
  ++early_updates_;
}

void ZeroEngine::Impl::UpdateNow(ChunkId chunk) {
  CountEarlyUpdate(chunk);
  UpdateChunk(chunk, static_cast<float>(AveragingFactor()), *early_lr_);
}

Event ZeroEngine::Impl::UpdateFrom(ChunkId chunk, std::byte* from,
                                   const Event& reduced) {
  CountEarlyUpdate(chunk);
  const internal::PassingGrad passing{from, reduced};
  return UpdateChunk(chunk, static_cast<float>(AveragingFactor()), *early_lr_,
                     &passing);
}

Status ZeroEngine::Impl::RequireNotUpdated(ChunkId chunk) const {
  if (!grads_[chunk.index()].updated) [[likely]] {
    return OkStatus();
  }
  return FailedPrecondition(fmt::format(
      "chunk {} is updated already, as UpdateEarly() allowed once the gradient "
      "of {} was handed back: call Step() first",
      chunk.value(), Name(layout_->chunk(chunk).params.front())));
}

Status ZeroEngine::Impl::SetUpdate(UpdateFunction update) {
  if (options_.optimizer.kind != OptimizerKind::kCustom) {
    return FailedPrecondition(fmt::format(
        "the optimizer is {}, which needs no update from outside: give the "
        "options the kind custom",
        OptimizerName(options_.optimizer.kind)));
  }
  if (micro_batches_ > 0) {
    return FailedPrecondition(
        "a step is half done: call Step() or Abandon() before SetUpdate()");
  }
  program_update_ =
      std::make_shared<internal::ProgramUpdate>(std::move(update));
  return OkStatus();
}

Status ZeroEngine::Impl::RequireUpdate() const {
  if (options_.optimizer.kind != OptimizerKind::kCustom ||
      program_update_ != nullptr) [[likely]] {
    return OkStatus();
  }
  return FailedPrecondition(
      "the optimizer is a custom one and nobody gave its update: call "
      "SetUpdate() before the first step");
}

// Waits for the program's calls. Where the first of them failed before anything
// was changed, and no other rank changes anything, the step counts as skipped.
Status ZeroEngine::Impl::FinishProgramUpdate() {
  if (program_update_ == nullptr) return OkStatus();
  const Event done[] = {host_lane_->Record(), device_lane_->Record()};
  CASTOR_RETURN_IF_ERROR(AllOf(done).Wait());
  bool wrote = false;
  const Status outcome = program_update_->TakeOutcome(&wrote);
  if (outcome.ok()) return outcome;
  bool early = false;
  for (const ChunkGrad& grad : grads_) early = early || grad.updated;
  if (wrote || early || comm_->world() > 1) {
    return Fail(Aborted(fmt::format(
        "the optimizer's update failed in the middle of a step, so that some "
        "parameters are updated and others are not; load a checkpoint into a "
        "new engine: {}",
        outcome.message())));
  }
  for (Param& param : params_) param.steps -= param.used;
  return outcome.WithContext(
      "the optimizer's update failed before it changed anything, and this "
      "step's gradients are dropped");
}

// Every rank has updated part of what it keeps of the chunk's parameters: the
// rest is gathered, in place where the home is the device, else through a slot.
void ZeroEngine::Impl::RefreshReplicas(ChunkId chunk) {
  const StateKind kind = StateKind::kParam;
  const ShardRange own = sharding_.updated(*layout_, chunk);
  const Elements shard = own.end - own.begin;
  const DType dtype = layout_->dtype(chunk);
  const ByteRange own_bytes = RangeBytes(chunk, kind, own);
  const Bytes whole = store_->bytes(chunk, kind);
  const CollectiveTag tag{chunk, SharedMoment(), "refresh",
                          sharding_.refresh_scope()};
  auto event = std::make_shared<RunEvent>(
      EventFor(RunEventKind::kGather, chunk, RunCause::kRefresh));
  event->bytes = (whole - own_bytes.size()).count();
  const auto gather_at = [&](std::byte* data) {
    RecordSpan(*comm_lane_, event, true);
    comm_->AllGather(*comm_lane_, data + own_bytes.begin.count(), data, shard,
                     dtype, tag);
    RecordSpan(*comm_lane_, event, false);
    return comm_lane_->Record();
  };
  if (store_->home(chunk, kind) == Tier::kDevice) {
    comm_lane_->Wait(store_->WriteReady(chunk, kind));
    store_->SetWritten(chunk, kind,
                       gather_at(store_->device_data(chunk, kind)));
    return;
  }
  // Nothing is held between steps and every class has a slot.
  Result<Slot> slot = manager_->BorrowSlot(chunk);
  CASTOR_CHECK(slot.ok());
  comm_lane_->Wait(store_->Load(chunk, kind, own_bytes,
                                slot->data + own_bytes.begin.count(),
                                slot->free_after, RunCause::kRefresh));
  const Event gathered = gather_at(slot->data);
  manager_->ReturnSlot(
      *slot, store_->Store(chunk, kind, {Bytes(0), whole}, slot->data, gathered,
                           RunCause::kRefresh));
}

}  // namespace castor
