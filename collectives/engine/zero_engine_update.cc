// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/engine/zero_engine_impl.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/optimizer.h"
#include "offload/worker_pool.h"
#include "placement/trace.h"
#include "placement/trace/use_order.h"

namespace castor {

// One fused pass per parameter over the elements this rank updates.
struct ZeroEngine::Impl::UpdateWork {
  struct Piece {
    Segment segment;
    bool update = false;  // no rank had a gradient: left as it was
    OptimizerScalars scalars;
    MomentRounding rounding;
  };
  std::vector<Piece> pieces;
  float factor = 1;
  DType dtype = DType::kF32;  // of parameters
  DType grad_dtype = DType::kF32;
  DType moment_dtype = DType::kF32;
  int64_t elements = 0;  // of the range
  std::byte* grad = nullptr;
  std::byte* param = nullptr;   // in `dtype`
  std::byte* master = nullptr;  // null: the parameter is its own master
  // Of the optimizer's, null where it has none.
  std::array<std::byte*, kMaxOptimizerStates> states = {};

  // Where the data of each state is: null where the chunk does not have it.
  template <typename DataOf>
  void Place(const DataOf& data) {
    grad = data(StateKind::kGrad);
    param = data(StateKind::kParam);
    master = data(StateKind::kMaster);
    for (int i = 0; i < kMaxOptimizerStates; ++i) {
      states[static_cast<size_t>(i)] = data(OptimizerState(i));
    }
  }

  // On the host, where the buffers are.
  void Run(WorkerPool& workers) const {
    int64_t written = 0;
    for (const Piece& piece : pieces) {
      if (!piece.update) continue;
      CopyDown(written, piece.segment.offset);
      const OptimizerBuffers buffers = BuffersOf(piece);
      workers.ParallelFor(piece.segment.count, buffers.param,
                          [&](int64_t begin, int64_t end) {
                            OptimizerStep(SkipElements(buffers, begin),
                                          end - begin, piece.scalars, factor);
                          });
      written = piece.segment.offset + piece.segment.count;
    }
    CopyDown(written, elements);
  }

  // Queues it on the device, where the buffers are: the homes, in which what is
  // not updated follows its master already, unless it was `overwritten`.
  void Queue(Device& device, Lane& lane, bool overwritten) const {
    for (const Piece& piece : pieces) {
      if (!piece.update) {
        if (overwritten) Restore(device, lane, piece.segment);
        continue;
      }
      device.Optimize(lane, BuffersOf(piece), Elements(piece.segment.count),
                      piece.scalars, factor);
    }
  }

 private:
  static float* Floats(std::byte* data) {
    return reinterpret_cast<float*>(data);
  }
  OptimizerBuffers BuffersOf(const Piece& piece) const {
    const int64_t at = piece.segment.offset;
    const int64_t size = DTypeBits(dtype) / 8;
    OptimizerBuffers buffers;
    buffers.grad = grad + at * DTypeBits(grad_dtype) / 8;
    buffers.grad_dtype = grad_dtype;
    buffers.param = Floats(master != nullptr ? master : param) + at;
    buffers.exp_avg = StateAt(0, at);
    buffers.exp_avg_sq = StateAt(1, at);
    buffers.moment_dtype = moment_dtype;
    buffers.rounding = piece.rounding;
    if (master != nullptr) {
      buffers.low = param + at * size;
      buffers.low_dtype = dtype;
    }
    return buffers;
  }
  std::byte* StateAt(size_t index, int64_t at) const {
    std::byte* const data = states[index];
    return data == nullptr ? nullptr : data + at * DTypeBits(moment_dtype) / 8;
  }
  void Restore(Device& device, Lane& lane, const Segment& segment) const {
    device.Convert(lane, master + segment.offset * DTypeBits(DType::kF32) / 8,
                   DType::kF32, param + segment.offset * DTypeBits(dtype) / 8,
                   dtype, Elements(segment.count));
  }
  // A window on low-precision parameters is written whole: what is not updated
  // follows its master, padding included.
  void CopyDown(int64_t from, int64_t to) const {
    if (master == nullptr || from >= to) return;
    ConvertFromFloat(Floats(master) + from, to - from, dtype,
                     param + from * (DTypeBits(dtype) / 8));
  }
};

ZeroEngine::Impl::UpdateWork ZeroEngine::Impl::MakeWork(ChunkId chunk,
                                                        ShardRange range,
                                                        float factor,
                                                        double lr) const {
  UpdateWork work;
  work.factor = factor;
  work.dtype = layout_->dtype(chunk);
  work.grad_dtype = GradDType(chunk);
  work.elements = (range.end - range.begin).count();
  work.moment_dtype = options_.optimizer.moment_dtype;
  for (const Segment& segment : Segments(chunk, range)) {
    const Param& param = params_[segment.param.index()];
    UpdateWork::Piece piece;
    piece.segment = segment;
    piece.update = param.used;
    if (param.used) {
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

Event ZeroEngine::Impl::UpdateOnDevice(ChunkId chunk, float factor, double lr) {
  const ShardRange range = sharding_.updated(*layout_, chunk);
  UpdateWork work = MakeWork(chunk, range, factor, lr);
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
  UpdateWork work = MakeWork(chunk, range, factor, lr);
  // What the pass works on, together: it never waits for some of it while it
  // holds the rest.
  std::vector<WindowRequest> requests;
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
  host_lane_->Run(
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
