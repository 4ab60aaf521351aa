// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How a shard changes its home.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/units_text.h"
#include "offload/shards/shard_store.h"

namespace castor {
namespace {

bool Staged(Tier from, Tier to) {
  return (from == Tier::kNvme && to == Tier::kDevice) ||
         (from == Tier::kDevice && to == Tier::kNvme);
}

}  // namespace

// First the slot is waited for, then, in turn with all other requests, staging.
// The shard stays where it is until both are there and nobody holds it; a move
// whose turn comes too early gives the staging back and asks again when the
// shard is let go, so that it never holds what others need for that.
struct ShardStore::PendingMove {
  ChunkId chunk;
  StateKind state = StateKind::kParam;
  Tier to = Tier::kHost;
  RunCause cause = RunCause::kNone;
  Slot slot;             // not valid while it waits for one
  bool in_turn = false;  // has asked for its turn
  EventSource done;
};

Result<int32_t> ShardStore::ClassFor(Tier to, const Shard& shard) const {
  const TierPool& pool = options_.pools->pool(to);
  int32_t found = pool.SmallestClass(shard.bytes, /*free=*/true);
  if (found < 0) found = pool.SmallestClass(shard.bytes, /*free=*/false);
  if (found >= 0) return found;
  Bytes largest;
  for (int32_t c = 0; c < pool.classes(); ++c) {
    if (pool.slot_class(c).slots == 0) continue;
    largest = std::max(largest, pool.slot_class(c).slot_bytes);
  }
  return Infeasible(fmt::format(
      "{} do not fit into any slot of the {} pool, whose largest has {}: give "
      "it slots of that size first",
      FormatBytes(shard.bytes), TierName(to), FormatBytes(largest)));
}

Result<Event> ShardStore::Move(ChunkId chunk, StateKind state, Tier to,
                               RunCause cause, int32_t slot_class) {
  Shard& shard = At(chunk, state);
  CASTOR_CHECK(shard.slot.valid());
  const auto named = [&](const Status& status) {
    return status.WithContext(fmt::format(
        "moving {} of chunk {} from {} to {}", options_.names.of(state),
        chunk.value(), TierName(shard.home), TierName(to)));
  };
  if (shard.move != nullptr) {
    if (shard.move->to == to) return shard.move->done.event();
    return named(FailedPrecondition(
        fmt::format("it is on its way to {} already: wait for that move",
                    TierName(shard.move->to))));
  }
  if (shard.home == to) return written(chunk, state);
  if (Staged(shard.home, to)) {
    if (Status staging = staging_->CheckServable(1, StagingUse::kWork);
        !staging.ok()) {
      return named(staging);
    }
    const Bytes extent = PlaceOf(shard, shard.pieces.front()).extent;
    if (staging_->slot_bytes() < extent) {
      return named(Infeasible(fmt::format(
          "it takes a staging slot of {} and those there are have {}",
          FormatBytes(extent), FormatBytes(staging_->slot_bytes()))));
    }
  }
  TierPool& pool = options_.pools->pool(to);
  if (slot_class < 0) {
    const Result<int32_t> fitting = ClassFor(to, shard);
    if (!fitting.ok()) return named(fitting.status());
    slot_class = *fitting;
  }
  CASTOR_CHECK_LE(shard.bytes, pool.slot_class(slot_class).slot_bytes);

  const auto move = std::make_shared<PendingMove>();
  move->chunk = chunk;
  move->state = state;
  move->to = to;
  move->cause = cause;
  shard.move = move;
  const Status asked =
      pool.TakeNext(slot_class, SlotHold::kSettled, [this, move](Slot slot) {
        move->slot = std::move(slot);
        AdvanceMove(move);
      });
  if (!asked.ok()) {
    shard.move = nullptr;
    return named(asked);
  }
  // Others may wait for its old slot from now on.
  if (shard.move != nullptr) {
    options_.pools->pool(shard.home).MarkPassing(shard.slot);
  }
  return move->done.event();
}

void ShardStore::AdvanceMove(const std::shared_ptr<PendingMove>& move) {
  Shard& shard = At(move->chunk, move->state);
  if (!move->slot.valid() || move->in_turn || shard.holds > 0) return;
  move->in_turn = true;
  const Status asked =
      staging_->Take(Staged(shard.home, move->to) ? 1 : 0, StagingUse::kWork,
                     [this, move, &shard](std::span<Slot> staging) {
                       move->in_turn = false;
                       if (shard.holds == 0) {
                         StartMove(*move, staging)
                             .OnDone([done = move->done](const Status& status) {
                               done.Complete(status);
                             });
                         return;
                       }
                       for (Slot& slot : staging) {
                         Event free_after = slot.free_after;
                         staging_->Give(std::move(slot), std::move(free_after));
                       }
                     });
  CASTOR_CHECK(asked.ok());
}

Event ShardStore::StartMove(PendingMove& move, std::span<Slot> staging) {
  Shard& shard = At(move.chunk, move.state);
  const Tier from = shard.home;
  const Slot left = std::exchange(shard.slot, move.slot);
  std::vector<Event> ends, unused;
  for (Piece& piece : shard.pieces) {
    const Event end =
        shard.filled ? MovePiece(move, piece, PlaceIn(from, left, piece),
                                 PlaceIn(move.to, move.slot, piece),
                                 staging.empty() ? nullptr : staging.data())
                     // Nobody has written it: there is nothing to carry.
                     : Both(piece.written, move.slot.free_after);
    unused.push_back(Both(WriteReady(piece), end));
    ends.push_back(end);
    piece.written = end;
    piece.readers.clear();
  }
  shard.home = move.to;
  shard.move = nullptr;
  // Last: whoever waits for these goes on.
  for (Slot& slot : staging) {
    Event free_after = slot.free_after;
    staging_->Give(std::move(slot), std::move(free_after));
  }
  options_.pools->pool(from).Give(left, AllOf(unused));
  return AllOf(ends);
}

Event ShardStore::MovePiece(const PendingMove& move, const Piece& piece,
                            const Place& from, const Place& to, Slot* staging) {
  const Event& room = move.slot.free_after;
  const auto copy = [&](Lane& lane, std::byte* target, const std::byte* source,
                        Tier source_tier, Tier target_tier) {
    const RunEvent event =
        Describe(move.chunk, move.state, source_tier, target_tier,
                 piece.range.size(), move.cause);
    Count(event);
    return Copy(lane, target, source, event);
  };
  const auto transfer = [&](const Place& drive, std::byte* data, Event start) {
    const bool read = drive.tier == from.tier;
    return MoveExtent(
        drive, data, std::move(start),
        Describe(move.chunk, move.state, read ? Tier::kNvme : Tier::kHost,
                 read ? Tier::kHost : Tier::kNvme, drive.extent, move.cause));
  };
  if (to.tier == Tier::kNvme && from.tier == Tier::kDevice) {
    from_device_->Wait(piece.written);
    from_device_->Wait(staging->free_after);
    const Event copied = copy(*from_device_, staging->data, from.data,
                              Tier::kDevice, Tier::kHost);
    return staging->free_after =
               transfer(to, staging->data, Both(copied, room));
  }
  if (to.tier == Tier::kNvme) {
    return transfer(to, from.data, Both(piece.written, room));
  }
  if (from.tier == Tier::kNvme && to.tier == Tier::kDevice) {
    to_device_->Wait(transfer(from, staging->data,
                              Both(piece.written, staging->free_after)));
    to_device_->Wait(room);
    return staging->free_after = copy(*to_device_, to.data, staging->data,
                                      Tier::kHost, Tier::kDevice);
  }
  if (from.tier == Tier::kNvme) {
    return transfer(from, to.data, Both(piece.written, room));
  }
  Lane& lane = to.tier == Tier::kDevice ? *to_device_ : *from_device_;
  lane.Wait(piece.written);
  lane.Wait(room);
  return copy(lane, to.data, from.data, from.tier, to.tier);
}

void ShardStore::Vacate(ChunkId chunk, StateKind state) {
  Shard& shard = At(chunk, state);
  CASTOR_CHECK_EQ(shard.holds, 0);
  CASTOR_CHECK(shard.move == nullptr && shard.slot.valid());
  const Slot left = std::exchange(shard.slot, Slot());
  Event free_after = WriteReady(shard);
  shard.vacated = left.slot_class;
  SetWritten(shard, Event());
  shard.filled = false;
  options_.pools->pool(shard.home).Give(left, std::move(free_after));
}

Status ShardStore::Reoccupy(ChunkId chunk, StateKind state) {
  Shard& shard = At(chunk, state);
  CASTOR_CHECK(!shard.slot.valid());
  CASTOR_ASSIGN_OR_RETURN(
      shard.slot,
      options_.pools->pool(shard.home).Take(shard.vacated, SlotHold::kSettled));
  for (Piece& piece : shard.pieces) piece.written = shard.slot.free_after;
  return OkStatus();
}

}  // namespace castor
