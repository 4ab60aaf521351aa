// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Shards on their way to device memory and from it, and at once for callers
// that block.

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "chunk/base/check.h"
#include "offload/shards/load_ticket_state.h"
#include "offload/shards/shard_store.h"

namespace castor {

struct ShardStore::LoadWork {
  ChunkId chunk;
  StateKind state = StateKind::kParam;
  ByteRange range;
  std::byte* to = nullptr;
  Event after;
  RunCause cause = RunCause::kNone;
  std::shared_ptr<LoadTicket::State> ticket;
};

Event ShardStore::Load(ChunkId chunk, StateKind state, ByteRange range,
                       std::byte* to, const Event& after, RunCause cause,
                       LoadTicket* ticket) {
  std::shared_ptr<LoadTicket::State> shared;
  if (ticket != nullptr && cause == RunCause::kPrefetch) {
    ticket->state_ = shared = std::make_shared<LoadTicket::State>();
  }
  std::vector<Event> loaded;
  for (const Part& part : PartsOf(At(chunk, state), range)) {
    loaded.push_back(
        LoadPart({chunk, state, part.range, to, after, cause, shared}));
    to += part.range.size().count();
  }
  return loaded.size() == 1 ? loaded.front() : AllOf(loaded);
}

Event ShardStore::LoadPart(LoadWork work) {
  Shard& shard = At(work.chunk, work.state);
  CASTOR_CHECK(!PieceAt(shard, work.range).writing);
  const int64_t staging = shard.home == Tier::kNvme ? 1 : 0;
  if (staging == 0 && !OthersWait()) return LoadNow(work, {});
  const ChunkId chunk = work.chunk;
  const StateKind state = work.state;
  return InTurn(chunk, state, staging, StagingUse::kFetch,
                [this, work = std::move(work)](std::span<Slot> slots) {
                  return LoadNow(work, slots);
                });
}

Event ShardStore::LoadNow(const LoadWork& work, std::span<Slot> staging) {
  Shard& shard = At(work.chunk, work.state);
  if (work.ticket != nullptr && work.ticket->cancelled()) {
    for (Slot& slot : staging) {
      Event free_after = slot.free_after;
      staging_->Give(std::move(slot), std::move(free_after));
    }
    return Event();
  }
  Piece& piece = PieceAt(shard, work.range);
  const Place home = PlaceOf(shard, piece);
  const std::byte* from = home.data;
  Event there = piece.written;
  if (shard.home == Tier::kNvme) {
    from = staging[0].data;
    there = MoveExtent(home, staging[0].data,
                       Both(piece.written, staging[0].free_after),
                       Describe(work.chunk, work.state, Tier::kNvme,
                                Tier::kHost, home.extent, work.cause),
                       work.ticket);
    AddReader(piece, there);
  }
  from += (work.range.begin - piece.range.begin).count();
  const RunEvent copy =
      Describe(work.chunk, work.state,
               shard.home == Tier::kDevice ? Tier::kDevice : Tier::kHost,
               Tier::kDevice, work.range.size(), work.cause);
  Count(copy);
  Event end;
  if (work.cause == RunCause::kPrefetch) {
    if (work.ticket != nullptr) {
      work.ticket->chunk = work.chunk;
      work.ticket->from = copy.from;
      ++work.ticket->copies;
      work.ticket->bytes += work.range.size();
    }
    ahead_->Wait(work.after);
    ahead_->Wait(there);
    end = CopyAhead(work.to, from, copy, work.ticket);
  } else {
    to_device_->Wait(work.after);
    to_device_->Wait(there);
    end = Copy(*to_device_, work.to, from, copy);
  }
  if (shard.home == Tier::kNvme) {
    staging_->Give(std::move(staging[0]), end);
  } else {
    AddReader(piece, end);
  }
  return end;
}

bool ShardStore::Cancel(const LoadTicket& ticket) {
  LoadTicket::State* const state = ticket.state_.get();
  if (state == nullptr || !state->Cancel()) return false;
  Count(state->chunk, state->from, Tier::kDevice, Bytes(0) - state->bytes,
        -state->copies);
  // What has not gone to the drive need not.
  for (const LoadTicket::State::Read& read : state->reads) {
    if (!read.drive->Cancel(read.transfer)) continue;
    Count(state->chunk, Tier::kNvme, Tier::kHost, Bytes(0) - read.extent, -1);
  }
  ++loads_cancelled_;
  return true;
}

void ShardStore::Raise(const LoadTicket& ticket) {
  LoadTicket::State* const state = ticket.state_.get();
  if (state == nullptr) return;
  state->urgent = true;  // should it still wait for its turn
  for (const LoadTicket::State::Read& read : state->reads) {
    read.drive->Raise(read.transfer, IoPriority::kDemand);
  }
}

Event ShardStore::Store(ChunkId chunk, StateKind state, ByteRange range,
                        const std::byte* from, const Event& after,
                        RunCause cause) {
  std::vector<Event> copied;
  for (const Part& part : PartsOf(At(chunk, state), range)) {
    copied.push_back(StorePart(chunk, state, part.range, from, after, cause));
    from += part.range.size().count();
  }
  return copied.size() == 1 ? copied.front() : AllOf(copied);
}

Event ShardStore::StorePart(ChunkId chunk, StateKind state, ByteRange range,
                            const std::byte* from, const Event& after,
                            RunCause cause) {
  Shard& shard = At(chunk, state);
  CASTOR_CHECK_EQ(PieceAt(shard, range).windows, 0);
  const int64_t staging = shard.home == Tier::kNvme ? 1 : 0;
  if (staging == 0 && !OthersWait()) {
    return StoreNow(chunk, state, range, from, after, cause, {});
  }
  return InTurn(chunk, state, staging, StagingUse::kWork,
                [=, this](std::span<Slot> slots) {
                  return StoreNow(chunk, state, range, from, after, cause,
                                  slots);
                });
}

Event ShardStore::StoreNow(ChunkId chunk, StateKind state, ByteRange range,
                           const std::byte* from, const Event& after,
                           RunCause cause, std::span<Slot> staging) {
  Shard& shard = At(chunk, state);
  Piece& piece = PieceAt(shard, range);
  const Place home = PlaceOf(shard, piece);
  const bool drive = shard.home == Tier::kNvme;
  const RunEvent copy =
      Describe(chunk, state, Tier::kDevice, drive ? Tier::kHost : shard.home,
               range.size(), cause);
  Count(copy);
  from_device_->Wait(after);
  if (!drive) {
    from_device_->Wait(WriteReady(piece));
    std::byte* const to = home.data + (range.begin - piece.range.begin).count();
    Event end = Copy(*from_device_, to, from, copy);
    SetWritten(shard, piece, end);
    return end;
  }
  CASTOR_CHECK_EQ(range.size(), piece.range.size());
  from_device_->Wait(staging[0].free_after);
  Event copied = Copy(*from_device_, staging[0].data, from, copy);
  Event end = MoveExtent(
      home, staging[0].data, Both(WriteReady(piece), copied),
      Describe(chunk, state, Tier::kHost, Tier::kNvme, home.extent, cause));
  SetWritten(shard, piece, end);
  staging_->Give(std::move(staging[0]), std::move(end));
  // The device memory may be reused once it is copied out.
  return copied;
}

Status ShardStore::CheckMayBlock() const {
  if (!OthersWait()) return OkStatus();
  return FailedPrecondition(fmt::format(
      "{} requests wait for staging slots, of which the {} open windows hold "
      "{} of {}: close windows first",
      staging_->waiting(), open_windows_, staging_->slots() - staging_->here(),
      staging_->slots()));
}

Status ShardStore::WriteNow(ChunkId chunk, StateKind state,
                            const std::byte* from) {
  Shard& shard = At(chunk, state);
  CASTOR_RETURN_IF_ERROR(CheckMayBlock());
  CASTOR_RETURN_IF_ERROR(WriteReady(shard).Wait());
  if (shard.home == Tier::kHost) {
    std::memcpy(shard.slot.data, from,
                static_cast<size_t>(shard.bytes.count()));
    shard.filled = true;
    return OkStatus();
  }
  if (shard.home == Tier::kDevice) {
    const RunEvent copy = Describe(chunk, state, Tier::kHost, Tier::kDevice,
                                   shard.bytes, RunCause::kStart);
    Count(copy);
    const Event end = Copy(*to_device_, shard.slot.data, from, copy);
    SetWritten(shard, end);
    return end.Wait();
  }
  for (Piece& piece : shard.pieces) {
    CASTOR_ASSIGN_OR_RETURN(Slot staging, TakeStagingNow());
    if (Status free = staging.free_after.Wait(); !free.ok()) {
      staging_->Give(std::move(staging), Event::Failed(free));
      return free;
    }
    std::memset(staging.data, 0, static_cast<size_t>(staging.size.count()));
    std::memcpy(staging.data, from + piece.range.begin.count(),
                static_cast<size_t>(piece.range.size().count()));
    const Place home = PlaceOf(shard, piece);
    const Event end =
        MoveExtent(home, staging.data, Event(),
                   Describe(chunk, state, Tier::kHost, Tier::kNvme, home.extent,
                            RunCause::kStart));
    SetWritten(shard, piece, end);
    staging_->Give(std::move(staging), end);
    CASTOR_RETURN_IF_ERROR(end.Wait());
  }
  return OkStatus();
}

Status ShardStore::ReadNow(ChunkId chunk, StateKind state, ByteRange range,
                           std::byte* to) {
  Shard& shard = At(chunk, state);
  CASTOR_RETURN_IF_ERROR(CheckMayBlock());
  CASTOR_RETURN_IF_ERROR(Written(shard).Wait());
  if (shard.home == Tier::kHost) {
    std::memcpy(to, shard.slot.data + range.begin.count(),
                static_cast<size_t>(range.size().count()));
    return OkStatus();
  }
  if (shard.home == Tier::kDevice) {
    const RunEvent copy = Describe(chunk, state, Tier::kDevice, Tier::kHost,
                                   range.size(), RunCause::kNone);
    Count(copy);
    return Copy(*from_device_, to, shard.slot.data + range.begin.count(), copy)
        .Wait();
  }
  for (const auto& [piece, part] : PartsOf(shard, range)) {
    CASTOR_ASSIGN_OR_RETURN(Slot staging, TakeStagingNow());
    const Place home = PlaceOf(shard, *piece);
    const Event end =
        MoveExtent(home, staging.data, staging.free_after,
                   Describe(chunk, state, Tier::kNvme, Tier::kHost, home.extent,
                            RunCause::kNone));
    const Status read = end.Wait();
    if (read.ok()) {
      std::memcpy(to, staging.data + (part.begin - piece->range.begin).count(),
                  static_cast<size_t>(part.size().count()));
    }
    staging_->Give(std::move(staging), end);
    CASTOR_RETURN_IF_ERROR(read);
    to += part.size().count();
  }
  return OkStatus();
}

std::span<std::byte> ShardStore::MemoryNow(ChunkId chunk, StateKind state,
                                           bool written) {
  Shard& shard = At(chunk, state);
  const bool addressed = shard.home == Tier::kHost ||
                         (shard.home == Tier::kDevice &&
                          options_.pools->device().facts().host_addressable);
  if (!addressed || !shard.slot.valid()) return {};
  shard.filled = shard.filled || written;
  return {shard.slot.data, static_cast<size_t>(shard.bytes.count())};
}

Bytes ShardStore::DriveBytes(ChunkId chunk, StateKind state) const {
  const Shard& shard = At(chunk, state);
  Bytes bytes;
  if (shard.home != Tier::kNvme || !shard.slot.valid()) return bytes;
  for (const Piece& piece : shard.pieces) bytes += PlaceOf(shard, piece).extent;
  return bytes;
}

void ShardStore::GiveSpaceNow(ChunkId chunk, StateKind state) {
  const Shard& shard = At(chunk, state);
  if (shard.home != Tier::kNvme || !shard.slot.valid()) return;
  for (const Piece& piece : shard.pieces) {
    const Place place = PlaceOf(shard, piece);
    const RankPools::NvmePlace nvme = options_.pools->nvme_at(place.offset);
    nvme.store->GiveSpace(nvme.offset, place.extent);
  }
}

Result<Slot> ShardStore::TakeStagingNow() {
  CASTOR_RETURN_IF_ERROR(staging_->CheckServable(1, StagingUse::kFetch));
  if (staging_->GrantsNow(1, StagingUse::kFetch)) {
    return staging_->TakeOne(StagingUse::kFetch);
  }
  return FailedPrecondition(fmt::format(
      "all {} staging slots are held by the {} windows that are open: close "
      "one first",
      staging_->slots(), open_windows_));
}

}  // namespace castor
