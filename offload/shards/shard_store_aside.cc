// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Spare places of shards: new bytes beside a home that keeps the old ones,
// until the owner commits or drops the new bytes.

#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/shards/shard_store.h"

namespace castor {

Status ShardStore::TakeAside(ChunkId chunk, StateKind state, Tier tier,
                             int32_t slot_class) {
  Shard& shard = At(chunk, state);
  CASTOR_CHECK(shard.aside == nullptr && tier != Tier::kDevice);
  CASTOR_CHECK(shard.home == Tier::kHost ||
               tier ==
                   (shard.home == Tier::kDevice ? Tier::kHost : Tier::kNvme));
  CASTOR_ASSIGN_OR_RETURN(Slot slot,
                          options_.pools->pool(tier).Take(slot_class));
  CASTOR_CHECK_LE(shard.bytes, slot.size);
  shard.aside = std::make_unique<Aside>();
  shard.aside->tier = tier;
  shard.aside->slot = std::move(slot);
  return OkStatus();
}

Status ShardStore::AsideFailure(ChunkId chunk, StateKind state) {
  const Shard& shard = At(chunk, state);
  CASTOR_CHECK(shard.aside != nullptr);
  for (const Aside::Part& part : shard.aside->parts) {
    if (part.written.done() && !part.written.status().ok()) {
      return part.written.status();
    }
  }
  return OkStatus();
}

void ShardStore::DropAside(ChunkId chunk, StateKind state) {
  Shard& shard = At(chunk, state);
  CASTOR_CHECK(shard.aside != nullptr);
  const std::unique_ptr<Aside> aside = std::move(shard.aside);
  std::vector<Event> written = {aside->slot.free_after};
  for (const Aside::Part& part : aside->parts) {
    written.push_back(EndOf(part.written));
  }
  options_.pools->pool(aside->tier).Give(aside->slot, AllOf(written));
}

void ShardStore::CommitAside(ChunkId chunk, StateKind state) {
  CASTOR_CHECK(!OthersWait());
  Shard& shard = At(chunk, state);
  CASTOR_CHECK(shard.aside != nullptr && shard.move == nullptr);
  const std::unique_ptr<Aside> aside = std::move(shard.aside);
  if (shard.home != aside->tier) return CopyAside(chunk, state, *aside);
  std::vector<Event> unused;
  Bytes bytes;
  for (Piece& piece : shard.pieces) {
    unused.push_back(WriteReady(piece));
    std::vector<Event> written;
    for (const Aside::Part& part : aside->parts) {
      if (part.range.begin < piece.range.begin) continue;
      if (part.range.end > piece.range.end) continue;
      written.push_back(part.written);
      part.written.OnDone([failures = failures_](const Status& status) {
        if (!status.ok()) failures.Add(status);
      });
      bytes += part.range.size();
    }
    piece.written = AllOf(written);
    piece.readers.clear();
  }
  CASTOR_CHECK_EQ(bytes, shard.bytes);
  const Slot left = std::exchange(shard.slot, aside->slot);
  options_.pools->pool(shard.home).Give(left, AllOf(unused));
}

void ShardStore::CopyAside(ChunkId chunk, StateKind state, const Aside& aside) {
  Shard& shard = At(chunk, state);
  std::vector<Event> ends = {aside.slot.free_after};
  for (const Aside::Part& part : aside.parts) {
    Piece& piece = PieceAt(shard, part.range);
    ends.push_back(CopyAsidePart(chunk, state, aside.slot, piece, part.range,
                                 Both(part.written, WriteReady(piece))));
    SetWritten(shard, piece, ends.back());
  }
  options_.pools->pool(aside.tier).Give(aside.slot, AllOf(ends));
}

Event ShardStore::CopyAsidePart(ChunkId chunk, StateKind state,
                                const Slot& from, const Piece& piece,
                                ByteRange range, const Event& ready) {
  const Shard& shard = At(chunk, state);
  if (shard.home == Tier::kHost) {
    const Place place = PlaceIn(Tier::kNvme, from, piece);
    return MoveExtent(place, PlaceOf(shard, piece).data, ready,
                      Describe(chunk, state, Tier::kNvme, Tier::kHost,
                               place.extent, RunCause::kGuess));
  }
  const RunEvent copy = Describe(chunk, state, Tier::kHost, Tier::kDevice,
                                 range.size(), RunCause::kGuess);
  Count(copy);
  back_to_device_->Wait(ready);
  return Copy(*back_to_device_, shard.slot.data + range.begin.count(),
              from.data + range.begin.count(), copy);
}

}  // namespace castor
