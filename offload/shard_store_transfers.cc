// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What every move of a ShardStore is made of: copies on a lane, transfers of
// whole extents, and the record of both.

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "offload/nvme/nvme_store.h"
#include "offload/shard_store.h"

namespace castor {

Event ShardStore::Both(const Event& a, const Event& b) {
  if (a.done() && a.status().ok()) return b;
  if (b.done() && b.status().ok()) return a;
  const Event events[] = {a, b};
  return AllOf(events);
}

Event ShardStore::Copy(Lane& lane, std::byte* to, const std::byte* from,
                       Bytes size, RunEvent event) {
  moved_[TierIndex(event.from)][TierIndex(event.to)] += size;
  lane.Run([this, to, from, size, event]() mutable {
    if (options_.recorder != nullptr) event.begin_ns = options_.clock->NowNs();
    std::memcpy(to, from, static_cast<size_t>(size.count()));
    if (options_.recorder != nullptr) {
      event.end_ns = options_.clock->NowNs();
      options_.recorder->Record(event);
    }
    return OkStatus();
  });
  return lane.Record();
}

RunEvent ShardStore::Describe(ChunkId chunk, StateKind state, Tier from,
                              Tier to, Bytes size, RunCause cause) const {
  RunEvent event;
  event.kind = RunEventKind::kTransfer;
  event.rank = options_.rank;
  event.step = step_;
  event.chunk = chunk.value();
  event.state = state;
  event.from = from;
  event.to = to;
  event.bytes = size.count();
  event.cause = cause;
  return event;
}

Event ShardStore::ReadExtent(Shard& shard, const Slot& staging,
                             const Event& after, const RunEvent& event) {
  Event end = MoveExtent(shard, staging, Both(shard.written, after), event);
  AddReader(ChunkId(event.chunk), event.state, end);
  return end;
}

Event ShardStore::WriteExtent(Shard& shard, const Slot& staging,
                              const Event& after, const RunEvent& event) {
  const ChunkId chunk(event.chunk);
  Event end = MoveExtent(shard, staging,
                         Both(WriteReady(chunk, event.state), after), event);
  SetWritten(chunk, event.state, end);
  return end;
}

// Somebody waits for what is read, unless it is fetched ahead; nobody for what
// is written.
IoPriority ShardStore::PriorityOf(const RunEvent& event) {
  if (event.from != Tier::kNvme) return IoPriority::kWriteBack;
  return event.cause == RunCause::kPrefetch ? IoPriority::kPrefetch
                                            : IoPriority::kDemand;
}

Event ShardStore::MoveExtent(const Shard& shard, const Slot& staging,
                             Event start, const RunEvent& event) {
  const Bytes size = shard.slot.size;
  moved_[TierIndex(event.from)][TierIndex(event.to)] += size;
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
  const std::span data(staging.data, static_cast<size_t>(size.count()));
  std::string what =
      fmt::format("{} of chunk {}", StateKindName(event.state), event.chunk);
  NvmeStore& nvme = *options_.pools->nvme();
  const Event moved = event.from == Tier::kNvme
                          ? nvme.Read(shard.slot.offset, data, start,
                                      std::move(what), PriorityOf(event))
                          : nvme.Write(shard.slot.offset, data, start,
                                       std::move(what), PriorityOf(event));
  EventSource ended;
  Event end = ended.event();
  moved.OnDone([ended = std::move(ended), timed = std::move(timed),
                clock = options_.clock, recorder = options_.recorder,
                on_failure = options_.on_failure](const Status& status) {
    if (!status.ok()) {
      if (on_failure) on_failure(status);
    } else if (timed != nullptr) {
      timed->end_ns = clock->NowNs();
      recorder->Record(*timed);
    }
    ended.Complete(status);
  });
  return end;
}

}  // namespace castor
