// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How a shard changes its home.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/units_text.h"
#include "offload/shard_store.h"

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
    return status.WithContext(fmt::format("moving {} of chunk {} from {} to {}",
                                          StateKindName(state), chunk.value(),
                                          TierName(shard.home), TierName(to)));
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
    if (staging_->slot_bytes() < PlaceOf(shard).extent) {
      return named(Infeasible(fmt::format(
          "it takes a staging slot of {} and those there are have {}",
          FormatBytes(PlaceOf(shard).extent),
          FormatBytes(staging_->slot_bytes()))));
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
  const Place from = PlaceOf(shard);
  Place to = from;
  to.tier = move.to;
  to.slot = move.slot;
  const auto copy = [&](Lane& lane, std::byte* target, const std::byte* source,
                        Tier source_tier, Tier target_tier) {
    const RunEvent event = Describe(move.chunk, move.state, source_tier,
                                    target_tier, shard.bytes, move.cause);
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
  Event end;
  if (!shard.filled) {
    // Nobody has written it: there is nothing to carry.
    end = Both(shard.written, to.slot.free_after);
  } else if (to.tier == Tier::kNvme && from.tier == Tier::kDevice) {
    from_device_->Wait(shard.written);
    from_device_->Wait(staging[0].free_after);
    const Event copied = copy(*from_device_, staging[0].data, from.slot.data,
                              Tier::kDevice, Tier::kHost);
    end = transfer(to, staging[0].data, Both(copied, to.slot.free_after));
  } else if (to.tier == Tier::kNvme) {
    end = transfer(to, from.slot.data, Both(shard.written, to.slot.free_after));
  } else if (from.tier == Tier::kNvme && to.tier == Tier::kDevice) {
    to_device_->Wait(transfer(from, staging[0].data,
                              Both(shard.written, staging[0].free_after)));
    to_device_->Wait(to.slot.free_after);
    end = copy(*to_device_, to.slot.data, staging[0].data, Tier::kHost,
               Tier::kDevice);
  } else if (from.tier == Tier::kNvme) {
    end = transfer(from, to.slot.data, Both(shard.written, to.slot.free_after));
  } else {
    Lane& lane = to.tier == Tier::kDevice ? *to_device_ : *from_device_;
    lane.Wait(shard.written);
    lane.Wait(to.slot.free_after);
    end = copy(lane, to.slot.data, from.slot.data, from.tier, to.tier);
  }
  Event left = Both(WriteReady(shard), end);
  shard.home = to.tier;
  shard.slot = to.slot;
  shard.written = end;
  shard.readers.clear();
  shard.move = nullptr;
  // Last: whoever waits for these goes on.
  for (Slot& slot : staging) staging_->Give(std::move(slot), end);
  options_.pools->pool(from.tier).Give(from.slot, std::move(left));
  return end;
}

void ShardStore::Vacate(ChunkId chunk, StateKind state) {
  Shard& shard = At(chunk, state);
  CASTOR_CHECK_EQ(shard.holds, 0);
  CASTOR_CHECK(shard.move == nullptr && shard.slot.valid());
  const Slot left = std::exchange(shard.slot, Slot());
  Event free_after = WriteReady(shard);
  shard.vacated = left.slot_class;
  shard.written = Event();
  shard.readers.clear();
  shard.filled = false;
  options_.pools->pool(shard.home).Give(left, std::move(free_after));
}

Status ShardStore::Reoccupy(ChunkId chunk, StateKind state) {
  Shard& shard = At(chunk, state);
  CASTOR_CHECK(!shard.slot.valid());
  CASTOR_ASSIGN_OR_RETURN(
      shard.slot,
      options_.pools->pool(shard.home).Take(shard.vacated, SlotHold::kSettled));
  shard.written = shard.slot.free_after;
  return OkStatus();
}

}  // namespace castor
