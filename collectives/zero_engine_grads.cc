// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/zero_engine_impl.h"
#include "offload/kernels/reduce.h"

namespace castor {

RunEvent ZeroEngine::Impl::EventFor(RunEventKind kind, ChunkId chunk,
                                    RunCause cause) const {
  RunEvent event;
  event.kind = kind;
  event.cause = cause;
  event.rank = comm_->rank();
  event.step = static_cast<int32_t>(step_ + 1);
  event.moment = manager_ ? static_cast<int32_t>(manager_->moment()) : -1;
  event.chunk = chunk.value();
  return event;
}

// Notes the time at which `lane` gets here, as the begin or the end of `event`;
// the end records it.
void ZeroEngine::Impl::RecordSpan(Lane& lane,
                                  const std::shared_ptr<RunEvent>& event,
                                  bool begin) const {
  if (options_.recorder == nullptr) return;
  lane.Run(
      [event, begin, clock = options_.clock, recorder = options_.recorder] {
        (begin ? event->begin_ns : event->end_ns) = clock->NowNs();
        if (!begin) recorder->Record(*event);
        return OkStatus();
      });
}

Event ZeroEngine::Impl::Gather(ChunkId chunk, const Slot& slot, RunCause cause,
                               int64_t moment) {
  const StateKind kind = StateKind::kParam;
  const Bytes kept = store_->bytes(chunk, kind);
  if (sharding_.replicated(kind)) {
    return store_->Load(chunk, kind, {Bytes(0), kept}, slot.data,
                        slot.free_after, cause);
  }
  // The shard lands in its own slice and the rest is gathered around it; a
  // shard at home on the device is sent from there.
  std::byte* own = slot.data + kept.count() * comm_->rank();
  const std::byte* shard = own;
  if (store_->home(chunk, kind) == Tier::kDevice) {
    shard = store_->device_data(chunk, kind);
    comm_lane_->Wait(slot.free_after);
    comm_lane_->Wait(store_->written(chunk, kind));
  } else {
    comm_lane_->Wait(store_->Load(chunk, kind, {Bytes(0), kept}, own,
                                  slot.free_after, cause));
  }
  auto event =
      std::make_shared<RunEvent>(EventFor(RunEventKind::kGather, chunk, cause));
  event->bytes = kept.count() * (comm_->world() - 1);
  RecordSpan(*comm_lane_, event, true);
  const ShardRange range = layout_->shard(chunk, comm_->rank());
  comm_->AllGather(*comm_lane_, shard, slot.data, range.end - range.begin,
                   layout_->dtype(chunk), {chunk, moment, "param"});
  RecordSpan(*comm_lane_, event, false);
  Event gathered = comm_lane_->Record();
  if (shard != own) store_->AddReader(chunk, kind, gathered);
  return gathered;
}

std::byte* ZeroEngine::Impl::DirectData(ChunkId chunk) {
  return store_->device_data(chunk, StateKind::kParam);
}

Event ZeroEngine::Impl::DirectReady(ChunkId chunk) {
  return store_->written(chunk, StateKind::kParam);
}

void ZeroEngine::Impl::DirectUsed(ChunkId chunk, Event last_use) {
  store_->AddReader(chunk, StateKind::kParam, std::move(last_use));
}

Result<ParamLease> ZeroEngine::Impl::Acquire(std::span<const ParamId> params,
                                             Lane& lane) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  ParamLease lease;
  lease.pins_.reserve(params.size());
  lease.data_.reserve(params.size());
  for (ParamId id : params) {
    CASTOR_CHECK(id.valid() && id.index() < params_.size());
    const ParamPlace& place = layout_->place(id);
    if (!place.chunk.valid()) {
      lease.data_.push_back(nullptr);
      continue;
    }
    auto pin = std::find_if(
        lease.pins_.begin(), lease.pins_.end(),
        [&](const ChunkPin& p) { return p.chunk() == place.chunk; });
    if (pin == lease.pins_.end()) {
      CASTOR_ASSIGN_OR_RETURN(ChunkPin made,
                              manager_->Acquire(place.chunk, lane));
      lease.pins_.push_back(std::move(made));
      pin = lease.pins_.end() - 1;
    }
    lease.data_.push_back(
        pin->data() +
        BytesOf(place.offset, layout_->dtype(place.chunk)).count());
  }
  // On a lane that waits at once, a failed copy is known by now.
  CASTOR_RETURN_IF_ERROR(lane.status());
  return lease;
}

void ParamLease::Release() {
  pins_.clear();
  data_.clear();
}

Status ZeroEngine::Impl::BeginMicroBatch(bool last) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  if (evaluating_ > 0) {
    return FailedPrecondition("a micro-batch cannot begin inside Evaluate");
  }
  if (micro_batches_ > 0 && last_micro_batch_) {
    return FailedPrecondition(
        "the micro-batch before this one was said to be the last: call Step");
  }
  CASTOR_RETURN_IF_ERROR(FlushGrads());
  if (micro_batches_++ == 0) step_begin_ns_ = options_.clock->NowNs();
  last_micro_batch_ = last;
  for (Param& param : params_) param.grad_ready = false;
  return OkStatus();
}

Result<void*> ZeroEngine::Impl::Grad(ParamId param, Lane& lane) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  const ParamPlace& place = layout_->place(param);
  const ChunkId chunk = place.chunk;
  if (micro_batches_ == 0 || evaluating_ > 0) {
    return FailedPrecondition(fmt::format(
        "gradient of {} outside a micro-batch: call BeginMicroBatch first",
        Name(param)));
  }
  if (!params_[param.index()].spec.trainable) {
    return FailedPrecondition(
        fmt::format("parameter {} is frozen: it has no gradient", Name(param)));
  }
  if (params_[param.index()].grad_ready) {
    return FailedPrecondition(fmt::format(
        "the gradient of {} was handed back already in this micro-batch",
        Name(param)));
  }
  if (!chunk.valid()) return static_cast<void*>(nullptr);
  ChunkGrad& grad = grads_[chunk.index()];
  if (grad.state == GradState::kNone) {
    CASTOR_ASSIGN_OR_RETURN(grad.slot, manager_->OpenGrad(chunk));
    CASTOR_ASSIGN_OR_RETURN(grad.state,
                            NextState(grad.state, GradEvent::kOpen));
    grad.params_left = 0;
    for (ParamId other : layout_->chunk(chunk).params) {
      if (!params_[other.index()].grad_ready) ++grad.params_left;
    }
    lane.Wait(grad.slot.free_after);
    lane.Run([data = grad.slot.data, bytes = ChunkBytes(chunk)] {
      std::memset(data, 0, static_cast<size_t>(bytes.count()));
      return OkStatus();
    });
    grad.opened = lane.Record();
    grad.lanes = {&lane};
  } else if (std::find(grad.lanes.begin(), grad.lanes.end(), &lane) ==
             grad.lanes.end()) {
    lane.Wait(grad.opened);
    grad.lanes.push_back(&lane);
  }
  params_[param.index()].used = true;
  return static_cast<void*>(
      grad.slot.data + BytesOf(place.offset, layout_->dtype(chunk)).count());
}

Status ZeroEngine::Impl::GradReady(ParamId param, Lane& lane) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  const ChunkId chunk = layout_->place(param).chunk;
  if (!chunk.valid()) return OkStatus();
  ChunkGrad& grad = grads_[chunk.index()];
  if (grad.state != GradState::kOpen || params_[param.index()].grad_ready) {
    return FailedPrecondition(fmt::format(
        "the gradient of {} is not open: call Grad first", Name(param)));
  }
  params_[param.index()].grad_ready = true;
  grad.ready.push_back(lane.Record());
  if (--grad.params_left == 0) ReduceChunk(chunk);
  return lane.status();
}

Status ZeroEngine::Impl::FlushGrads() {
  for (size_t c = 0; c < grads_.size(); ++c) {
    if (grads_[c].state != GradState::kOpen) continue;
    // What was opened and not handed back may still be written to.
    for (Lane* lane : grads_[c].lanes) {
      grads_[c].ready.push_back(lane->Record());
    }
    ReduceChunk(ChunkId(static_cast<int32_t>(c)));
  }
  return OkStatus();
}

void ZeroEngine::Impl::ReduceChunk(ChunkId chunk) {
  ChunkGrad& grad = grads_[chunk.index()];
  grad.state = *NextState(grad.state, GradEvent::kAllReady);
  const Event ready = AllOf(grad.ready);
  grad.ready.clear();
  const bool first = !grad.valid;
  const bool home_on_device =
      store_->home(chunk, StateKind::kGrad) == Tier::kDevice;
  const bool replicated = sharding_.replicated(StateKind::kGrad);
  std::byte* reduced_at = grad.slot.data;
  Event reduced = ready;
  if (comm_->world() > 1) {
    const ShardRange range = layout_->shard(chunk, comm_->rank());
    const Elements shard = range.end - range.begin;
    const DType dtype = layout_->dtype(chunk);
    std::byte* own =
        grad.slot.data + BytesOf(shard, dtype).count() * comm_->rank();
    // The first sum of a step is received where it will stay, if that is on the
    // device; later ones are added to it.
    std::byte* target = own;
    if (first && home_on_device) {
      target = store_->device_data(chunk, StateKind::kGrad);
      if (replicated) target += own - grad.slot.data;
      comm_lane_->Wait(store_->WriteReady(chunk, StateKind::kGrad));
    }
    comm_lane_->Wait(ready);
    auto event = std::make_shared<RunEvent>(
        EventFor(RunEventKind::kReduceScatter, chunk, RunCause::kGradient));
    event->state = StateKind::kGrad;
    event->bytes = BytesOf(shard, dtype).count() * (comm_->world() - 1);
    RecordSpan(*comm_lane_, event, true);
    const CollectiveTag tag{chunk, manager_->moment(), "grad"};
    comm_->ReduceScatter(*comm_lane_, grad.slot.data, target, shard, dtype,
                         tag);
    RecordSpan(*comm_lane_, event, false);
    reduced_at = target;
    if (replicated) {
      reduced_at -= own - grad.slot.data;
      comm_->AllGather(*comm_lane_, target, reduced_at, shard, dtype, tag);
    }
    reduced = comm_lane_->Record();
  }
  ++reduce_scatters_;
  Event free_after = Deposit(chunk, reduced_at, reduced);
  grad.valid = true;
  if (CountsNorm() && last_micro_batch_) grad.counted = true;
  manager_->CloseGrad(chunk, grad.slot, std::move(free_after));
  grad.state = *NextState(grad.state, GradEvent::kReduced);
  grad.slot = Slot();
}

Event ZeroEngine::Impl::Deposit(ChunkId chunk, const std::byte* from,
                                const Event& reduced) {
  const bool first = !grads_[chunk.index()].valid;
  return store_->home(chunk, StateKind::kGrad) == Tier::kDevice
             ? DepositOnDevice(chunk, from, reduced, first)
             : DepositOnHost(chunk, from, reduced, first);
}

Event ZeroEngine::Impl::DepositOnDevice(ChunkId chunk, const std::byte* from,
                                        const Event& reduced, bool first) {
  const StateKind kind = StateKind::kGrad;
  std::byte* home = store_->device_data(chunk, kind);
  const bool there = from == home;
  if (there) {
    store_->SetWritten(chunk, kind, reduced);
    if (!CountsNorm() || !last_micro_batch_) return reduced;
  }
  if (first && !there) engine_copies_ += store_->bytes(chunk, kind);
  device_lane_->Wait(reduced);
  if (!there) device_lane_->Wait(store_->WriteReady(chunk, kind));
  device_lane_->Run([this, chunk, home, from, first, there,
                     dtype = layout_->dtype(chunk),
                     bytes = store_->bytes(chunk, kind),
                     squares = CountsNorm() && last_micro_batch_] {
    if (!there) {
      const int64_t count = bytes.count() * 8 / DTypeBits(dtype);
      if (first) {
        std::memcpy(home, from, static_cast<size_t>(bytes.count()));
      } else {
        AddInto(home, from, dtype, count);
      }
    }
    if (squares) AddChunkSquares(chunk, home, &device_squares_);
    return OkStatus();
  });
  Event done = device_lane_->Record();
  if (there) {
    store_->AddReader(chunk, kind, done);
    return reduced;
  }
  store_->SetWritten(chunk, kind, done);
  return done;
}

Event ZeroEngine::Impl::DepositOnHost(ChunkId chunk, const std::byte* from,
                                      const Event& reduced, bool first) {
  const StateKind kind = StateKind::kGrad;
  const Bytes bytes = store_->bytes(chunk, kind);
  const ByteRange whole{Bytes(0), bytes};
  const bool squares = CountsNorm() && last_micro_batch_;
  if (first) {
    Event free_after =
        store_->Store(chunk, kind, whole, from, reduced, RunCause::kGradient);
    if (!squares) return free_after;
    device_lane_->Wait(reduced);
    device_lane_->Run([this, chunk, from] {
      AddChunkSquares(chunk, from, &device_squares_);
      return OkStatus();
    });
    const Event both[] = {free_after, device_lane_->Record()};
    return AllOf(both);
  }
  Event copied;
  Slot staging = store_->StageFromDevice(chunk, kind, from, bytes, reduced,
                                         RunCause::kGradient, &copied);
  HostWindow window = store_->OpenWindow(
      chunk, kind, whole, WindowMode::kReadWrite, RunCause::kGradient);
  host_lane_->Wait(copied);
  host_lane_->Wait(window.ready);
  host_lane_->Run(
      [this, chunk, squares, total = window.data, part = staging.data,
       dtype = layout_->dtype(chunk),
       count = bytes.count() * 8 / DTypeBits(layout_->dtype(chunk))] {
        AddInto(total, part, dtype, count);
        if (squares) AddChunkSquares(chunk, total, &host_squares_);
        return OkStatus();
      });
  const Event added = host_lane_->Record();
  store_->CloseWindow(std::move(window), added);
  store_->GiveStaging(std::move(staging), added);
  return copied;
}

void ZeroEngine::Impl::AddChunkSquares(ChunkId chunk, const std::byte* data,
                                       ExactSum* sum) const {
  const DType dtype = layout_->dtype(chunk);
  const ShardRange counted = sharding_.counted(*layout_, chunk);
  const std::byte* start =
      data + RangeBytes(chunk, StateKind::kGrad, counted).begin.count();
  for (const Segment& segment : Segments(chunk, counted)) {
    AddSquares(start + BytesOf(Elements(segment.offset), dtype).count(), dtype,
               segment.count, sum);
  }
}

Status ZeroEngine::Impl::Abandon() {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen("Abandon"));
  for (size_t c = 0; c < grads_.size(); ++c) {
    ChunkGrad& grad = grads_[c];
    if (grad.state == GradState::kOpen) {
      const ChunkId chunk(static_cast<int32_t>(c));
      for (Lane* lane : grad.lanes) grad.ready.push_back(lane->Record());
      grad.state = *NextState(grad.state, GradEvent::kAbandon);
      manager_->CloseGrad(chunk, grad.slot, AllOf(grad.ready));
    }
    grad = ChunkGrad();
  }
  CASTOR_RETURN_IF_ERROR(device_lane_->Drain());
  CASTOR_RETURN_IF_ERROR(host_lane_->Drain());
  device_squares_ = ExactSum();
  host_squares_ = ExactSum();
  for (Param& param : params_) param.used = param.grad_ready = false;
  micro_batches_ = 0;
  manager_->AbandonStep();
  return OkStatus();
}

}  // namespace castor
