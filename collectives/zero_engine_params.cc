// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <memory>
#include <utility>

#include "collectives/zero_engine_impl.h"

namespace castor {

Event ZeroEngine::Impl::Gather(ChunkId chunk, const Slot& slot, RunCause cause,
                               int64_t moment) {
  const StateKind kind = StateKind::kParam;
  const Bytes kept = store_->bytes(chunk, kind);
  if (sharding_.replicated(kind)) {
    return store_->Load(chunk, kind, {Bytes(0), kept}, slot.data,
                        slot.free_after, cause, &ahead_[chunk.index()]);
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
                                  slot.free_after, cause,
                                  &ahead_[chunk.index()]));
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
  const bool many = params.size() > ParamLease::kFew;
  if (many) {
    // No larger than that, so that pins stay where they are.
    lease.more_pins_.resize(params.size());
    lease.more_data_.resize(params.size());
  }
  ChunkPin* const pins = many ? lease.more_pins_.data() : lease.pin_.data();
  const void** const data = many ? lease.more_data_.data() : lease.data_.data();
  for (ParamId id : params) {
    CASTOR_CHECK(id.valid() && id.index() < params_.size());
    const ParamPlace& place = layout_->place(id);
    if (!place.chunk.valid()) {
      data[lease.size_++] = nullptr;
      continue;
    }
    ChunkPin* const end = pins + lease.pins_;
    ChunkPin* const pin = std::find_if(
        pins, end, [&](const ChunkPin& p) { return p.chunk() == place.chunk; });
    if (pin == end) {
      CASTOR_ASSIGN_OR_RETURN(*pin, manager_->Acquire(place.chunk, lane));
      ++lease.pins_;
    }
    data[lease.size_++] =
        pin->data() +
        BytesOf(place.offset, layout_->dtype(place.chunk)).count();
  }
  // On a lane that waits at once, a failed copy is known by now.
  CASTOR_RETURN_IF_ERROR(lane.status());
  return lease;
}

ParamLease& ParamLease::operator=(ParamLease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  size_ = std::exchange(other.size_, 0);
  pins_ = std::exchange(other.pins_, 0);
  if (other.more_data_.empty()) {
    for (size_t p = 0; p < pins_; ++p) pin_[p] = std::move(other.pin_[p]);
    data_ = other.data_;
  } else {
    more_pins_ = std::exchange(other.more_pins_, {});
    more_data_ = std::exchange(other.more_data_, {});
  }
  return *this;
}

void ParamLease::Release() {
  if (more_data_.empty()) {
    for (size_t p = 0; p < pins_; ++p) pin_[p].Release();
  } else {
    more_pins_.clear();
    more_data_.clear();
  }
  pins_ = 0;
  size_ = 0;
}

}  // namespace castor
