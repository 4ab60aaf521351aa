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

void ZeroEngine::Impl::UpdateChunk(ChunkId chunk, float factor, double lr) {
  bool on_device = true;
  for (int k = 0; k < kStateKinds; ++k) {
    const StateKind state = static_cast<StateKind>(k);
    if (store_->has(chunk, state) &&
        store_->home(chunk, state) != Tier::kDevice) {
      on_device = false;
    }
  }
  if (on_device) {
    UpdateOnDevice(chunk, factor, lr);
    return;
  }
  for (const ShardRange& range :
       WithinPieces(chunk, sharding_.updated(*layout_, chunk))) {
    UpdateOnHost(chunk, range, factor, lr);
  }
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

Event ZeroEngine::Impl::UpdateFrom(ChunkId chunk, const std::byte* from,
                                   const Event& reduced) {
  CountEarlyUpdate(chunk);
  const PassingGrad passing{from, reduced};
  std::vector<Event> copied;
  for (const ShardRange& range :
       WithinPieces(chunk, sharding_.updated(*layout_, chunk))) {
    copied.push_back(UpdateOnHost(chunk, range,
                                  static_cast<float>(AveragingFactor()),
                                  *early_lr_, &passing));
  }
  return AllOf(copied);
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

Event ZeroEngine::Impl::UpdateOnDevice(ChunkId chunk, float factor, double lr) {
  const ShardRange range = sharding_.updated(*layout_, chunk);
  internal::UpdateWork work = MakeWork(chunk, range, factor, lr);
  const auto data = [&](StateKind state) -> std::byte* {
    if (!store_->has(chunk, state)) return nullptr;
    return store_->device_data(chunk, state) +
           RangeBytes(chunk, state, range).begin.count();
  };
  work.Place(data);
  std::vector<StateKind> written;
  for (int k = 0; k < kStateKinds; ++k) {
    const auto state = static_cast<StateKind>(k);
    if (state != StateKind::kGrad && store_->has(chunk, state)) {
      written.push_back(state);
    }
  }
  device_lane_->Wait(store_->written(chunk, StateKind::kGrad));
  for (StateKind state : written) {
    device_lane_->Wait(store_->WriteReady(chunk, state));
  }
  auto event = std::make_shared<RunEvent>(
      EventFor(RunEventKind::kUpdate, chunk, RunCause::kOptimizer));
  event->bytes = work.elements * 4;
  RecordSpan(*device_lane_, event, true);
  CountUpdate(chunk, &StepTraffic::updated_on_device, range);
  work.Queue(pools_->device(), *device_lane_, LosesHome(chunk));
  RecordSpan(*device_lane_, event, false);
  Event done = device_lane_->Record();
  store_->AddReader(chunk, StateKind::kGrad, done);
  for (StateKind state : written) store_->SetWritten(chunk, state, done);
  return done;
}

Event ZeroEngine::Impl::UpdateOnHost(ChunkId chunk, ShardRange range,
                                     float factor, double lr,
                                     const PassingGrad* passing) {
  internal::UpdateWork work = MakeWork(chunk, range, factor, lr);
  // What the pass works on, together: it never waits for some of it while it
  // holds the rest.
  std::vector<WindowRequest> requests;
  requests.reserve(kStateKinds);
  const auto want = [&](StateKind state, WindowMode mode) {
    if (!store_->has(chunk, state)) return;
    WindowRequest request;
    request.chunk = chunk;
    request.state = state;
    request.range = RangeBytes(chunk, state, range);
    request.mode = mode;
    request.cause = RunCause::kOptimizer;
    requests.push_back(std::move(request));
  };
  const bool masters = store_->has(chunk, StateKind::kMaster);
  want(StateKind::kGrad,
       passing != nullptr ? WindowMode::kScratch : WindowMode::kRead);
  if (passing != nullptr) {
    WindowRequest& grad = requests.back();
    grad.from = passing->data + grad.range.begin.count();
    grad.after = passing->ready;
  }
  want(StateKind::kParam,
       masters ? WindowMode::kWrite : WindowMode::kReadWrite);
  want(StateKind::kMaster, WindowMode::kReadWrite);
  for (int i = 0; i < kMaxOptimizerStates; ++i) {
    want(OptimizerState(i), WindowMode::kReadWrite);
  }
  Result<std::vector<HostWindow>> opened = store_->OpenWindows(requests);
  if (!opened.ok()) {
    return Event::Failed(Fail(opened.status()));  // Step returns it
  }
  std::vector<HostWindow>& windows = *opened;
  const Event copied = passing != nullptr ? windows.front().ready : Event();
  std::array<HostBytes, kStateKinds> bytes;
  for (const HostWindow& window : windows) {
    bytes[static_cast<size_t>(window.state)] = window.bytes();
  }
  for (const HostWindow& window : windows) host_lane_->Wait(window.ready);
  auto event = std::make_shared<RunEvent>(
      EventFor(RunEventKind::kUpdate, chunk, RunCause::kOptimizer));
  event->bytes = work.elements * 4;
  event->from = event->to = Tier::kHost;
  RecordSpan(*host_lane_, event, true);
  CountUpdate(chunk, &StepTraffic::updated_on_host, range);
  QueuePass(chunk, HostPass::kUpdate,
            UpdateBytes(sharding_.update_pass(GroupOf(chunk)),
                        range.end - range.begin),
            [work = std::move(work), bytes, workers = Workers()]() mutable {
              work.Place([&](StateKind state) {
                return bytes[static_cast<size_t>(state)].get();
              });
              work.Run(*workers);
              return OkStatus();
            });
  RecordSpan(*host_lane_, event, false);
  const Event done = host_lane_->Record();
  for (HostWindow& window : windows) {
    store_->CloseWindow(std::move(window), done);
  }
  return copied;
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
