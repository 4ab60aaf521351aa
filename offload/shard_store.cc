// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/shard_store.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "chunk/base/check.h"
#include "offload/nvme/nvme_store.h"

namespace castor {
namespace {

Event Both(const Event& a, const Event& b) {
  if (a.done() && a.status().ok()) return b;
  if (b.done() && b.status().ok()) return a;
  const Event events[] = {a, b};
  return AllOf(events);
}

Event Joined(const std::vector<Event>& events, const Event& last) {
  std::vector<Event> waiting;
  for (const Event& event : events) {
    if (!event.done() || !event.status().ok()) waiting.push_back(event);
  }
  if (waiting.empty()) return last;
  waiting.push_back(last);
  return AllOf(waiting);
}

// The first call goes through.
Lane::OnFailure Once(Lane::OnFailure on_failure) {
  if (!on_failure) return {};
  auto called = std::make_shared<std::atomic<bool>>(false);
  return [called = std::move(called),
          on_failure = std::move(on_failure)](const Status& status) {
    if (!called->exchange(true)) on_failure(status);
  };
}

ShardStoreOptions HeardOnce(ShardStoreOptions options) {
  options.on_failure = Once(std::move(options.on_failure));
  return options;
}

}  // namespace

ShardStore::ShardStore(const ShardStoreOptions& options)
    : options_(HeardOnce(options)),
      to_device_(fmt::format("rank {} to device", options.rank),
                 options.executor, options_.on_failure),
      from_device_(fmt::format("rank {} from device", options.rank),
                   options.executor, options_.on_failure) {
  for (int64_t i = 0; i < options.staging_slots; ++i) {
    Result<Slot> slot =
        options.pools->pool(Tier::kHost).Take(options.staging_class);
    CASTOR_CHECK(slot.ok());
    staging_.push_back(*std::move(slot));
  }
}

ShardStore::~ShardStore() {
  to_device_.Drain().IgnoreError();  // on_failure has had it
  from_device_.Drain().IgnoreError();
  for (const auto& states : shards_) {
    for (const auto& shard : states) {
      if (shard == nullptr) continue;
      CASTOR_CHECK_EQ(shard->windows, 0);
      shard->written.Wait().IgnoreError();
      for (const Event& reader : shard->readers) reader.Wait().IgnoreError();
      options_.pools->pool(shard->home).Give(shard->slot, Event());
    }
  }
  for (const Slot& slot : staging_) {
    slot.free_after.Wait().IgnoreError();
    options_.pools->pool(Tier::kHost).Give(slot, Event());
  }
}

Status ShardStore::AddShard(ChunkId chunk, StateKind state, Tier home,
                            int32_t slot_class, Bytes bytes) {
  if (shards_.size() <= chunk.index()) shards_.resize(chunk.index() + 1);
  auto& shard = shards_[chunk.index()][static_cast<size_t>(state)];
  CASTOR_CHECK(shard == nullptr);
  CASTOR_ASSIGN_OR_RETURN(Slot slot,
                          options_.pools->pool(home).Take(slot_class));
  CASTOR_CHECK_LE(bytes, slot.size);
  shard = std::make_unique<Shard>();
  shard->home = home;
  shard->bytes = bytes;
  shard->slot = std::move(slot);
  return OkStatus();
}

ShardStore::Shard& ShardStore::At(ChunkId chunk, StateKind state) {
  CASTOR_CHECK(has(chunk, state));
  return *shards_[chunk.index()][static_cast<size_t>(state)];
}

const ShardStore::Shard& ShardStore::At(ChunkId chunk, StateKind state) const {
  return const_cast<ShardStore*>(this)->At(chunk, state);
}

bool ShardStore::has(ChunkId chunk, StateKind state) const {
  return chunk.index() < shards_.size() &&
         shards_[chunk.index()][static_cast<size_t>(state)] != nullptr;
}

Tier ShardStore::home(ChunkId chunk, StateKind state) const {
  return At(chunk, state).home;
}

Bytes ShardStore::bytes(ChunkId chunk, StateKind state) const {
  return At(chunk, state).bytes;
}

std::byte* ShardStore::device_data(ChunkId chunk, StateKind state) const {
  const Shard& shard = At(chunk, state);
  CASTOR_CHECK(shard.home == Tier::kDevice);
  return shard.slot.data;
}

const Event& ShardStore::written(ChunkId chunk, StateKind state) const {
  return At(chunk, state).written;
}

void ShardStore::AddReader(ChunkId chunk, StateKind state, Event reader) {
  Shard& shard = At(chunk, state);
  std::erase_if(shard.readers,
                [](const Event& e) { return e.done() && e.status().ok(); });
  if (!reader.done() || !reader.status().ok()) {
    shard.readers.push_back(std::move(reader));
  }
}

Event ShardStore::WriteReady(ChunkId chunk, StateKind state) {
  const Shard& shard = At(chunk, state);
  return Joined(shard.readers, shard.written);
}

void ShardStore::SetWritten(ChunkId chunk, StateKind state, Event written) {
  Shard& shard = At(chunk, state);
  shard.written = std::move(written);
  shard.readers.clear();
}

Event ShardStore::Load(ChunkId chunk, StateKind state, ByteRange range,
                       std::byte* to, const Event& after, RunCause cause) {
  Shard& shard = At(chunk, state);
  CASTOR_CHECK_LE(range.end, shard.bytes);
  CASTOR_CHECK(!shard.writing);
  const std::byte* from = nullptr;
  Slot staging;
  to_device_.Wait(after);
  if (shard.home == Tier::kNvme) {
    staging = TakeStaging();
    to_device_.Wait(ReadExtent(shard, staging, staging.free_after,
                               Describe(chunk, state, Tier::kNvme, Tier::kHost,
                                        shard.slot.size, cause)));
    from = staging.data + range.begin.count();
  } else {
    to_device_.Wait(shard.written);
    from = shard.slot.data + range.begin.count();
  }
  const Tier source = shard.home == Tier::kDevice ? Tier::kDevice : Tier::kHost;
  const Event end =
      Copy(to_device_, to, from, range.size(),
           Describe(chunk, state, source, Tier::kDevice, range.size(), cause));
  if (staging.valid()) {
    GiveStaging(std::move(staging), end);
  } else {
    AddReader(chunk, state, end);
  }
  return end;
}

Event ShardStore::Store(ChunkId chunk, StateKind state, ByteRange range,
                        const std::byte* from, const Event& after,
                        RunCause cause) {
  Shard& shard = At(chunk, state);
  CASTOR_CHECK_LE(range.end, shard.bytes);
  CASTOR_CHECK_EQ(shard.windows, 0);
  from_device_.Wait(after);
  if (shard.home != Tier::kNvme) {
    from_device_.Wait(WriteReady(chunk, state));
    const Event end = Copy(
        from_device_, shard.slot.data + range.begin.count(), from, range.size(),
        Describe(chunk, state, Tier::kDevice, shard.home, range.size(), cause));
    SetWritten(chunk, state, end);
    return end;
  }
  CASTOR_CHECK_EQ(range.size(), shard.bytes);
  Slot staging = TakeStaging();
  from_device_.Wait(staging.free_after);
  const Event copied = Copy(
      from_device_, staging.data, from, range.size(),
      Describe(chunk, state, Tier::kDevice, Tier::kHost, range.size(), cause));
  const Event end = WriteExtent(
      shard, staging, copied,
      Describe(chunk, state, Tier::kHost, Tier::kNvme, shard.slot.size, cause));
  GiveStaging(std::move(staging), end);
  // The device memory may be reused once it is copied out.
  return copied;
}

HostWindow ShardStore::OpenWindow(ChunkId chunk, StateKind state,
                                  ByteRange range, WindowMode mode,
                                  RunCause cause) {
  Shard& shard = At(chunk, state);
  CASTOR_CHECK_LE(range.end, shard.bytes);
  CASTOR_CHECK(!shard.writing);
  shard.writing = mode != WindowMode::kRead;
  CASTOR_CHECK(!shard.writing || shard.windows == 0);
  ++shard.windows;
  HostWindow window;
  window.chunk = chunk;
  window.state = state;
  window.range = range;
  window.mode = mode;
  window.cause = cause;
  if (shard.home == Tier::kHost) {
    window.data = shard.slot.data + range.begin.count();
    window.ready =
        mode == WindowMode::kRead ? shard.written : WriteReady(chunk, state);
    return window;
  }
  window.staging = TakeStaging();
  // Part of an extent cannot be written alone, so the rest is read as well.
  const bool whole = range.size() == shard.bytes;
  const bool reads =
      mode != WindowMode::kWrite || (shard.home == Tier::kNvme && !whole);
  if (shard.home == Tier::kNvme) {
    window.data = window.staging.data + range.begin.count();
    window.ready =
        reads ? ReadExtent(shard, window.staging, window.staging.free_after,
                           Describe(chunk, state, Tier::kNvme, Tier::kHost,
                                    shard.slot.size, cause))
              : window.staging.free_after;
    return window;
  }
  window.data = window.staging.data;
  window.ready = window.staging.free_after;
  if (reads) {
    from_device_.Wait(window.staging.free_after);
    from_device_.Wait(shard.written);
    window.ready = Copy(from_device_, window.data,
                        shard.slot.data + range.begin.count(), range.size(),
                        Describe(chunk, state, Tier::kDevice, Tier::kHost,
                                 range.size(), cause));
    AddReader(chunk, state, window.ready);
  }
  return window;
}

void ShardStore::CloseWindow(HostWindow window, const Event& after) {
  Shard& shard = At(window.chunk, window.state);
  CASTOR_CHECK_GT(shard.windows, 0);
  --shard.windows;
  shard.writing = false;
  // One that nobody used may not be ready yet.
  const Event used = Both(window.ready, after);
  if (shard.home == Tier::kHost) {
    if (window.mode == WindowMode::kRead) {
      AddReader(window.chunk, window.state, used);
    } else {
      SetWritten(window.chunk, window.state, used);
    }
    return;
  }
  if (window.mode == WindowMode::kRead) {
    GiveStaging(std::move(window.staging), used);
    return;
  }
  Event end;
  if (shard.home == Tier::kNvme) {
    end = WriteExtent(shard, window.staging, used,
                      Describe(window.chunk, window.state, Tier::kHost,
                               Tier::kNvme, shard.slot.size, window.cause));
  } else {
    to_device_.Wait(used);
    to_device_.Wait(WriteReady(window.chunk, window.state));
    end = Copy(to_device_, shard.slot.data + window.range.begin.count(),
               window.data, window.range.size(),
               Describe(window.chunk, window.state, Tier::kHost, Tier::kDevice,
                        window.range.size(), window.cause));
    SetWritten(window.chunk, window.state, end);
  }
  GiveStaging(std::move(window.staging), end);
}

Slot ShardStore::StageFromDevice(ChunkId chunk, StateKind state,
                                 const std::byte* from, Bytes size,
                                 const Event& after, RunCause cause,
                                 Event* copied) {
  Slot staging = TakeStaging();
  CASTOR_CHECK_LE(size, staging.size);
  from_device_.Wait(staging.free_after);
  from_device_.Wait(after);
  *copied =
      Copy(from_device_, staging.data, from, size,
           Describe(chunk, state, Tier::kDevice, Tier::kHost, size, cause));
  return staging;
}

Status ShardStore::WriteNow(ChunkId chunk, StateKind state,
                            const std::byte* from) {
  Shard& shard = At(chunk, state);
  CASTOR_RETURN_IF_ERROR(WriteReady(chunk, state).Wait());
  if (shard.home == Tier::kNvme) {
    Slot staging = TakeStaging();
    if (Status free = staging.free_after.Wait(); !free.ok()) {
      GiveStaging(std::move(staging), Event::Failed(free));
      return free;
    }
    std::memset(staging.data, 0, static_cast<size_t>(staging.size.count()));
    std::memcpy(staging.data, from, static_cast<size_t>(shard.bytes.count()));
    Event end = WriteExtent(shard, staging, Event(),
                            Describe(chunk, state, Tier::kHost, Tier::kNvme,
                                     shard.slot.size, RunCause::kStart));
    GiveStaging(std::move(staging), end);
    return end.Wait();
  }
  if (shard.home == Tier::kHost) {
    std::memcpy(shard.slot.data, from,
                static_cast<size_t>(shard.bytes.count()));
    return OkStatus();
  }
  Event end = Copy(to_device_, shard.slot.data, from, shard.bytes,
                   Describe(chunk, state, Tier::kHost, Tier::kDevice,
                            shard.bytes, RunCause::kStart));
  SetWritten(chunk, state, end);
  return end.Wait();
}

Status ShardStore::ReadNow(ChunkId chunk, StateKind state, ByteRange range,
                           std::byte* to) {
  Shard& shard = At(chunk, state);
  CASTOR_RETURN_IF_ERROR(shard.written.Wait());
  const size_t size = static_cast<size_t>(range.size().count());
  if (shard.home == Tier::kNvme) {
    Slot staging = TakeStaging();
    Event end = ReadExtent(shard, staging, staging.free_after,
                           Describe(chunk, state, Tier::kNvme, Tier::kHost,
                                    shard.slot.size, RunCause::kNone));
    GiveStaging(staging, end);
    CASTOR_RETURN_IF_ERROR(end.Wait());
    std::memcpy(to, staging.data + range.begin.count(), size);
    return OkStatus();
  }
  if (shard.home == Tier::kHost) {
    std::memcpy(to, shard.slot.data + range.begin.count(), size);
    return OkStatus();
  }
  return Copy(from_device_, to, shard.slot.data + range.begin.count(),
              range.size(),
              Describe(chunk, state, Tier::kDevice, Tier::kHost, range.size(),
                       RunCause::kNone))
      .Wait();
}

Slot ShardStore::TakeStaging() {
  CASTOR_CHECK(!staging_.empty());
  Slot slot = std::move(staging_.front());
  staging_.pop_front();
  return slot;
}

void ShardStore::GiveStaging(Slot slot, Event free_after) {
  slot.free_after = std::move(free_after);
  staging_.push_back(std::move(slot));
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
  const Event moved =
      event.from == Tier::kNvme
          ? nvme.Read(shard.slot.offset, data, start, std::move(what))
          : nvme.Write(shard.slot.offset, data, start, std::move(what));
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
