// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/params/param_gathers.h"

#include <memory>
#include <utility>

namespace castor::internal {

void ParamGathers::Begin() {
  ahead_.assign(model_.chunks(), LoadTicket());
  held_at_home_.assign(model_.chunks(), 0);
}

Event ParamGathers::Gather(ChunkId chunk, const Slot& slot, RunCause cause,
                           int64_t moment) {
  const StateKind kind = StateKind::kParam;
  const Bytes kept = memory_.store().bytes(chunk, kind);
  if (model_.sharding.replicated(kind)) {
    return memory_.store().Load(chunk, kind, {Bytes(0), kept}, slot.data,
                                slot.free_after, cause, &ahead_[chunk.index()]);
  }
  // A shard at home on the device is sent from there.
  if (memory_.store().home(chunk, kind) == Tier::kDevice) {
    Event gathered = GatherFrom(memory_.store().device_data(chunk, kind),
                                memory_.store().written(chunk, kind), chunk,
                                slot, cause, moment);
    memory_.store().AddReader(chunk, kind, gathered);
    return gathered;
  }
  // It lands in its own slice and the rest is gathered around it.
  const ShardRange range = model_.kept(kind, chunk);
  std::byte* own =
      slot.data + BytesOf(range.begin, model_.layout->dtype(chunk)).count();
  lanes_.comm->Wait(memory_.store().Load(chunk, kind, {Bytes(0), kept}, own,
                                         slot.free_after, cause,
                                         &ahead_[chunk.index()]));
  return GatherAround(own, chunk, slot, cause, moment);
}

Event ParamGathers::FetchShard(ChunkId chunk, std::byte* to, const Event& after,
                               RunCause cause) {
  const StateKind kind = StateKind::kParam;
  return memory_.store().Load(chunk, kind,
                              {Bytes(0), memory_.store().bytes(chunk, kind)},
                              to, after, cause, &ahead_[chunk.index()]);
}

Event ParamGathers::GatherFrom(const std::byte* shard, const Event& ready,
                               ChunkId chunk, const Slot& slot, RunCause cause,
                               int64_t moment) {
  lanes_.comm->Wait(slot.free_after);
  lanes_.comm->Wait(ready);
  return GatherAround(shard, chunk, slot, cause, moment);
}

Event ParamGathers::GatherAround(const std::byte* shard, ChunkId chunk,
                                 const Slot& slot, RunCause cause,
                                 int64_t moment) {
  const StateKind kind = StateKind::kParam;
  const Bytes kept = memory_.store().bytes(chunk, kind);
  const ShardRange range = model_.kept(kind, chunk);
  auto event = std::make_shared<RunEvent>(
      record_.EventFor(RunEventKind::kGather, chunk, cause));
  event->moment = static_cast<int32_t>(moment);
  event->bytes = kept.count() * (model_.sharding.pieces(kind) - 1);
  record_.Begin(*lanes_.comm, event);
  model_.comm->AllGather(
      *lanes_.comm, shard, slot.data, range.end - range.begin,
      model_.layout->dtype(chunk),
      {chunk, moment, "param", model_.sharding.param_scope()});
  record_.End(*lanes_.comm, event);
  return lanes_.comm->Record();
}

// A collective is made by all ranks or by none.
bool ParamGathers::Cancellable(ChunkId) const {
  return model_.sharding.replicated(StateKind::kParam);
}

bool ParamGathers::Cancel(ChunkId chunk) {
  return memory_.store().Cancel(ahead_[chunk.index()]);
}

void ParamGathers::Raise(ChunkId chunk) {
  memory_.store().Raise(ahead_[chunk.index()]);
}

Status ParamGathers::LeastOfRanks(std::span<int64_t> words) {
  return DecidesAlone() ? OkStatus() : words_.LeastOf(words, "uses that ended");
}

std::byte* ParamGathers::DirectData(ChunkId chunk) {
  ++held_at_home_[chunk.index()];
  return memory_.store().device_data(chunk, StateKind::kParam);
}

Event ParamGathers::DirectReady(ChunkId chunk) {
  return memory_.store().written(chunk, StateKind::kParam);
}

void ParamGathers::DirectUsed(ChunkId chunk, Event last_use) {
  --held_at_home_[chunk.index()];
  memory_.store().AddReader(chunk, StateKind::kParam, std::move(last_use));
}

void ParamGathers::AddReaders(const Event& reads) {
  for (size_t c = 0; c < held_at_home_.size(); ++c) {
    if (held_at_home_[c] == 0) continue;
    memory_.store().AddReader(ChunkId(static_cast<int32_t>(c)),
                              StateKind::kParam, reads);
  }
}

// Every rank has updated part of what it keeps of the chunk's parameters: the
// rest is gathered, in place where the home is the device, else through a slot.
void ParamGathers::Refresh(ChunkId chunk) {
  const StateKind kind = StateKind::kParam;
  const ShardRange own = model_.updated(chunk);
  const Elements shard = own.end - own.begin;
  const DType dtype = model_.layout->dtype(chunk);
  const ByteRange own_bytes = model_.RangeBytes(chunk, kind, own);
  const Bytes whole = memory_.store().bytes(chunk, kind);
  const CollectiveTag tag{chunk, record_.SharedMoment(), "refresh",
                          model_.sharding.refresh_scope()};
  auto event = std::make_shared<RunEvent>(
      record_.EventFor(RunEventKind::kGather, chunk, RunCause::kRefresh));
  event->bytes = (whole - own_bytes.size()).count();
  const auto gather_at = [&](std::byte* data) {
    record_.Begin(*lanes_.comm, event);
    model_.comm->AllGather(*lanes_.comm, data + own_bytes.begin.count(), data,
                           shard, dtype, tag);
    record_.End(*lanes_.comm, event);
    return lanes_.comm->Record();
  };
  if (memory_.store().home(chunk, kind) == Tier::kDevice) {
    lanes_.comm->Wait(memory_.store().WriteReady(chunk, kind));
    memory_.store().SetWritten(
        chunk, kind, gather_at(memory_.store().device_data(chunk, kind)));
    return;
  }
  // Nothing is held between steps and every class has a slot.
  Result<Slot> slot = memory_.manager().BorrowSlot(chunk);
  CASTOR_CHECK(slot.ok());
  lanes_.comm->Wait(memory_.store().Load(chunk, kind, own_bytes,
                                         slot->data + own_bytes.begin.count(),
                                         slot->free_after, RunCause::kRefresh));
  const Event gathered = gather_at(slot->data);
  memory_.manager().ReturnSlot(
      *slot, memory_.store().Store(chunk, kind, {Bytes(0), whole}, slot->data,
                                   gathered, RunCause::kRefresh));
}

}  // namespace castor::internal
