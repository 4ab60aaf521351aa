// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/engine/lease_copies.h"
#include "collectives/engine/zero_engine_impl.h"

namespace castor {

Event ZeroEngine::Impl::Gather(ChunkId chunk, const Slot& slot, RunCause cause,
                               int64_t moment) {
  const StateKind kind = StateKind::kParam;
  const Bytes kept = store_->bytes(chunk, kind);
  if (sharding_.replicated(kind)) {
    return store_->Load(chunk, kind, {Bytes(0), kept}, slot.data,
                        slot.free_after, cause, &ahead_[chunk.index()]);
  }
  // A shard at home on the device is sent from there.
  if (store_->home(chunk, kind) == Tier::kDevice) {
    Event gathered =
        GatherFrom(store_->device_data(chunk, kind),
                   store_->written(chunk, kind), chunk, slot, cause, moment);
    store_->AddReader(chunk, kind, gathered);
    return gathered;
  }
  // It lands in its own slice and the rest is gathered around it.
  const ShardRange range = sharding_.kept(kind, *layout_, chunk);
  std::byte* own =
      slot.data + BytesOf(range.begin, layout_->dtype(chunk)).count();
  comm_lane_->Wait(store_->Load(chunk, kind, {Bytes(0), kept}, own,
                                slot.free_after, cause,
                                &ahead_[chunk.index()]));
  return GatherAround(own, chunk, slot, cause, moment);
}

Event ZeroEngine::Impl::FetchShard(ChunkId chunk, std::byte* to,
                                   const Event& after, RunCause cause) {
  const StateKind kind = StateKind::kParam;
  return store_->Load(chunk, kind, {Bytes(0), store_->bytes(chunk, kind)}, to,
                      after, cause, &ahead_[chunk.index()]);
}

Event ZeroEngine::Impl::GatherFrom(const std::byte* shard, const Event& ready,
                                   ChunkId chunk, const Slot& slot,
                                   RunCause cause, int64_t moment) {
  comm_lane_->Wait(slot.free_after);
  comm_lane_->Wait(ready);
  return GatherAround(shard, chunk, slot, cause, moment);
}

Event ZeroEngine::Impl::GatherAround(const std::byte* shard, ChunkId chunk,
                                     const Slot& slot, RunCause cause,
                                     int64_t moment) {
  const StateKind kind = StateKind::kParam;
  const Bytes kept = store_->bytes(chunk, kind);
  const ShardRange range = sharding_.kept(kind, *layout_, chunk);
  auto event =
      std::make_shared<RunEvent>(EventFor(RunEventKind::kGather, chunk, cause));
  event->moment = static_cast<int32_t>(moment);
  event->bytes = kept.count() * (sharding_.pieces(kind) - 1);
  RecordSpan(*comm_lane_, event, true);
  comm_->AllGather(*comm_lane_, shard, slot.data, range.end - range.begin,
                   layout_->dtype(chunk),
                   {chunk, moment, "param", sharding_.param_scope()});
  RecordSpan(*comm_lane_, event, false);
  return comm_lane_->Record();
}

// A collective is made by all ranks or by none.
bool ZeroEngine::Impl::Cancellable(ChunkId) const {
  return sharding_.replicated(StateKind::kParam);
}

bool ZeroEngine::Impl::Cancel(ChunkId chunk) {
  return store_->Cancel(ahead_[chunk.index()]);
}

void ZeroEngine::Impl::Raise(ChunkId chunk) {
  store_->Raise(ahead_[chunk.index()]);
}

Status ZeroEngine::Impl::LeastOf(std::span<int64_t> words,
                                 std::string_view purpose) {
  if (comm_->world() == 1 || words.empty()) return OkStatus();
  comm_->AllReduce(*comm_lane_, words.data(), Elements(std::ssize(words)),
                   DType::kI64, ReduceOp::kMin,
                   {ChunkId(), SharedMoment(), purpose});
  return comm_lane_->Record().Wait();
}

std::byte* ZeroEngine::Impl::DirectData(ChunkId chunk) {
  ++held_in_place_[chunk.index()];
  return store_->device_data(chunk, StateKind::kParam);
}

Event ZeroEngine::Impl::DirectReady(ChunkId chunk) {
  return store_->written(chunk, StateKind::kParam);
}

void ZeroEngine::Impl::DirectUsed(ChunkId chunk, Event last_use) {
  --held_in_place_[chunk.index()];
  store_->AddReader(chunk, StateKind::kParam, std::move(last_use));
}

void ZeroEngine::Impl::WriteBehind(const Event& reads) {
  for (size_t c = 0; c < held_in_place_.size(); ++c) {
    if (held_in_place_[c] == 0) continue;
    store_->AddReader(ChunkId(static_cast<int32_t>(c)), StateKind::kParam,
                      reads);
  }
}

Result<ParamLease> ZeroEngine::Impl::Acquire(std::span<const ParamId> params,
                                             Lane& lane) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  if (spare_leases_.empty()) {
    leases_of_params_.push_back(std::make_unique<ParamLease::Held>());
    leases_of_params_.back()->lender = this;
    spare_leases_.reserve(leases_of_params_.size());
    spare_leases_.push_back(leases_of_params_.back().get());
  }
  ParamLease lease;
  ParamLease::Held& held = *(lease.held_ = spare_leases_.back());
  spare_leases_.pop_back();
  for (ParamId id : params) {
    CASTOR_CHECK(id.valid() && id.index() < params_.size());
    if (!acquired_[id.index()] && evaluating_ == 0) [[unlikely]] {
      acquired_[id.index()] = true;
      first_uses_.push_back(id);
    }
    const ParamPlace& place = layout_->place(id);
    if (grads_in_place()) {
      CASTOR_RETURN_IF_ERROR(RequireNotOverwritten(id));
      ++params_[id.index()].held;
      held.counts.push_back(&params_[id.index()].held);
    }
    if (!place.chunk.valid()) {
      held.data.push_back(nullptr);
      continue;
    }
    auto pin = std::find_if(
        held.pins.begin(), held.pins.end(),
        [&](const ChunkPin& p) { return p.chunk() == place.chunk; });
    if (pin == held.pins.end()) {
      CASTOR_RETURN_IF_ERROR(RequireNotUpdated(place.chunk));
      FollowPlan(std::nullopt, false);
      Result<ChunkPin> made = manager_->Acquire(place.chunk, lane);
      while (!made.ok() && MakeRoom()) {
        made = manager_->Acquire(place.chunk, lane);
      }
      if (!made.ok()) return WithEnough(made.status());
      held.pins.push_back(*std::move(made));
      pin = held.pins.end() - 1;
    }
    held.data.push_back(pin->data() + params_[id.index()].offset.count());
  }
  if (options_.poison) {
    CASTOR_RETURN_IF_ERROR(CopyForLease(params, lane, held));
  }
  // On a lane that waits at once, a failed copy is known by now.
  CASTOR_RETURN_IF_ERROR(lane.status());
  return lease;
}

Status ZeroEngine::Impl::CopyForLease(std::span<const ParamId> params,
                                      Lane& lane, ParamLease::Held& held) {
  if (lease_copies_ == nullptr) {
    lease_copies_ = std::make_unique<LeaseCopies>(pools_.get());
  }
  std::vector<LeaseCopies::Copy*> copies;
  // Those that were made before one fails go back too.
  held.lanes.push_back(&lane);
  Status status;
  for (size_t i = 0; i < params.size() && status.ok(); ++i) {
    if (held.data[i] == nullptr) continue;
    const Param& param = params_[params[i].index()];
    Result<LeaseCopies::Copy*> copy = lease_copies_->Make(
        params[i], static_cast<const std::byte*>(held.data[i]),
        BytesOf(param.size, param.spec.dtype), lane);
    status = copy.status();
    if (!status.ok()) break;
    held.data[i] = (*copy)->slab.data();
    copies.push_back(*copy);
  }
  held.poison = [copies = std::move(copies),
                 this](std::span<Lane* const> lanes) {
    for (LeaseCopies::Copy* const copy : copies) {
      lease_copies_->TakeBack(copy, lanes);
    }
  };
  return status;
}

ParamLease& ParamLease::operator=(ParamLease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  held_ = std::exchange(other.held_, nullptr);
  return *this;
}

void ParamLease::AlsoUsedOn(Lane& lane) {
  if (held_ == nullptr) return;
  for (ChunkPin& pin : held_->pins) pin.AlsoUsedOn(lane);
  if (held_->poison) held_->lanes.push_back(&lane);
}

void ParamLease::GiveBack() {
  Held* const held = std::exchange(held_, nullptr);
  held->lender->TakeBack(held);
}

void ZeroEngine::Impl::TakeBack(ParamLease::Held* held) {
  if (held->poison) [[unlikely]] {
    held->poison(held->lanes);
    held->poison = nullptr;
    held->lanes.clear();
  }
  for (ChunkPin& pin : held->pins) {
    // Ends that are the holders' own are no accesses of the plan.
    if (pin.traced() && !options_.own_lease_ends) {
      FollowPlan(std::nullopt, false);
    }
    pin.Release();
  }
  held->pins.clear();
  held->data.clear();
  for (int32_t* count : held->counts) --*count;
  held->counts.clear();
  spare_leases_.push_back(held);
}

}  // namespace castor
