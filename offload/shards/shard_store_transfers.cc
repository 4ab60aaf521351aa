// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What every move of a ShardStore is made of: copies on a lane, transfers of
// whole extents, and the record of both.

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "offload/nvme/store/nvme_store.h"
#include "offload/shards/load_ticket_state.h"
#include "offload/shards/shard_store.h"

namespace castor {
namespace {

// What transfers to and from the drive are multiples of.
constexpr Bytes kDriveBlock = KiB(4);

CopyKind KindOf(const RunEvent& event) {
  if (event.from != Tier::kDevice) return CopyKind::kToDevice;
  return event.to == Tier::kDevice ? CopyKind::kWithinDevice
                                   : CopyKind::kFromDevice;
}

}  // namespace

ShardStore::Place ShardStore::PlaceOf(const Shard& shard, const Piece& piece) {
  return PlaceIn(shard.home, shard.slot, piece);
}

ShardStore::Place ShardStore::PlaceIn(Tier tier, const Slot& slot,
                                      const Piece& piece) {
  const Bytes begin = piece.range.begin;
  return {tier, slot.offset + begin,
          slot.data == nullptr ? nullptr : slot.data + begin.count(),
          RoundUp(piece.range.size(), kDriveBlock)};
}

Event ShardStore::EndOf(const Event& event) {
  const EventSource over;
  event.OnDone([over](const Status&) { over.Complete(); });
  return over.event();
}

Event ShardStore::Both(const Event& a, const Event& b) {
  if (a.done() && a.status().ok()) return b;
  if (b.done() && b.status().ok()) return a;
  const Event events[] = {a, b};
  return AllOf(events);
}

Event ShardStore::Copy(Lane& lane, std::byte* to, const std::byte* from,
                       const RunEvent& event) {
  Device& device = options_.pools->device();
  const Bytes size(event.bytes);
  if (options_.recorder == nullptr) {
    device.Copy(lane, to, from, size, KindOf(event));
    return lane.Record();
  }
  const auto timed = std::make_shared<RunEvent>(event);
  NoteBegin(lane, timed);
  device.Copy(lane, to, from, size, KindOf(event));
  lane.NoteTime(options_.clock,
                [timed, recorder = options_.recorder](int64_t ns) {
                  timed->end_ns = ns;
                  recorder->Record(*timed);
                });
  return lane.Record();
}

Event ShardStore::CopyAhead(std::byte* to, const std::byte* from,
                            const RunEvent& event,
                            std::shared_ptr<LoadTicket::State> ticket) {
  Lane& lane = *ahead_;
  std::shared_ptr<RunEvent> timed;
  if (options_.recorder != nullptr) {
    timed = std::make_shared<RunEvent>(event);
    NoteBegin(lane, timed);
  }
  options_.pools->device().CopyIf(
      lane, to, from, Bytes(event.bytes), KindOf(event),
      [ticket] { return ticket == nullptr || ticket->Begin(); });
  if (timed != nullptr) {
    lane.NoteTime(options_.clock,
                  [timed, ticket, recorder = options_.recorder](int64_t ns) {
                    if (ticket != nullptr && ticket->cancelled()) return;
                    timed->end_ns = ns;
                    recorder->Record(*timed);
                  });
  }
  return lane.Record();
}

void ShardStore::NoteBegin(Lane& lane,
                           const std::shared_ptr<RunEvent>& event) const {
  lane.NoteTime(options_.clock, [event](int64_t ns) { event->begin_ns = ns; });
}

RunEvent ShardStore::Describe(ChunkId chunk, StateKind state, Tier from,
                              Tier to, Bytes size, RunCause cause) const {
  return Describe(chunk, state, from, to, size, cause, step_);
}

RunEvent ShardStore::Describe(ChunkId chunk, StateKind state, Tier from,
                              Tier to, Bytes size, RunCause cause,
                              int32_t step) const {
  RunEvent event;
  event.kind = RunEventKind::kTransfer;
  event.rank = options_.rank;
  event.step = step;
  event.chunk = chunk.value();
  event.state = state;
  event.from = from;
  event.to = to;
  event.bytes = size.count();
  event.cause = cause;
  return event;
}

void ShardStore::Count(const RunEvent& event) {
  const ChunkId chunk(event.chunk);
  const Bytes bytes(event.bytes);
  const Bytes counted = At(chunk, event.state).counted;
  const int64_t moves =
      counted == Bytes(0) || bytes == Bytes(0)
          ? 1
          : (bytes.count() + counted.count() - 1) / counted.count();
  Count(chunk, event.from, event.to, bytes, moves);
}

void ShardStore::Count(ChunkId chunk, Tier from, Tier to, Bytes bytes,
                       int64_t transfers) {
  moved_[TierIndex(from)][TierIndex(to)] += bytes;
  if (options_.traffic == nullptr) return;
  options_.traffic->Of(chunk).on(from, to) += {bytes, transfers};
}

// Somebody waits for what is read, unless it is fetched ahead; nobody for what
// is written, nor for an update.
IoPriority ShardStore::PriorityOf(const RunEvent& event) {
  if (IsOfUpdate(event.cause)) return IoPriority::kOptimizer;
  if (event.from != Tier::kNvme) return IoPriority::kWriteBack;
  return event.cause == RunCause::kPrefetch ? IoPriority::kPrefetch
                                            : IoPriority::kDemand;
}

Event ShardStore::MoveExtent(const Place& drive, std::byte* data, Event start,
                             const RunEvent& event,
                             std::shared_ptr<LoadTicket::State> ticket) {
  Count(event);
  return Transfer(options_.pools->nvme_at(drive.offset), data, drive.extent,
                  std::move(start), event, std::move(ticket));
}

Event ShardStore::Transfer(const RankPools::NvmePlace& drive, std::byte* data,
                           Bytes extent, Event start, const RunEvent& event,
                           std::shared_ptr<LoadTicket::State> ticket) {
  std::shared_ptr<RunEvent> timed;
  if (options_.recorder != nullptr) {
    timed = std::make_shared<RunEvent>(event);
    // The drive waits for this and not for `start`, so that the begin is known
    // by the end.
    EventSource begun;
    start.OnDone([timed, begun, clock = options_.clock](const Status& status) {
      timed->begin_ns = clock->NowNs();
      begun.Complete(status);
    });
    start = begun.event();
  }
  const std::span bytes(data, static_cast<size_t>(extent.count()));
  std::string what = fmt::format("{} of chunk {}",
                                 options_.names.of(event.state), event.chunk);
  NvmeTicket transfer;
  NvmeTicket* const named = ticket == nullptr ? nullptr : &transfer;
  const IoPriority priority = ticket != nullptr && ticket->urgent
                                  ? IoPriority::kDemand
                                  : PriorityOf(event);
  const Event moved = event.from == Tier::kNvme
                          ? drive.store->Read(drive.offset, bytes, start,
                                              std::move(what), priority, named)
                          : drive.store->Write(drive.offset, bytes, start,
                                               std::move(what), priority);
  if (ticket != nullptr) {
    ticket->reads.push_back({drive.store, std::move(transfer), extent});
  }
  EventSource ended;
  Event end = ended.event();
  // The owner of a spare place may do without the bytes (AsideFailure).
  const bool aside = event.cause == RunCause::kGuess && event.to == Tier::kNvme;
  moved.OnDone([aside, ended = std::move(ended), timed = std::move(timed),
                clock = options_.clock, recorder = options_.recorder,
                failures = failures_,
                ticket = std::move(ticket)](const Status& status) {
    if (status.ok()) {
      if (timed != nullptr) {
        timed->end_ns = clock->NowNs();
        recorder->Record(*timed);
      }
    } else if (ticket != nullptr && ticket->cancelled()) {
      // Nobody wants the bytes, nor what waits for them.
      return ended.Complete();
    } else if (!aside) {
      failures.Add(status);
    }
    ended.Complete(status);
  });
  return end;
}

}  // namespace castor
