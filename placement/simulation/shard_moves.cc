// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/simulation/shard_moves.h"

#include <fmt/format.h>

#include <utility>

#include "chunk/base/check.h"

namespace castor::internal {
namespace {

// As shard_store_transfers.cc: what transfers to and from the drive are
// multiples of.
constexpr Bytes kDriveBlock = KiB(4);

}  // namespace

void QueueTraffic(SimLane& lane, Wires* wires, Traffic traffic, Bytes bytes) {
  if (bytes == Bytes(0)) return;
  if (!wires->takes_time(traffic)) {
    lane.Run([=] { wires->Begin(traffic, bytes, [] {}); });
    return;
  }
  lane.RunAsync([=](const SimSource& source) {
    wires->Begin(traffic, bytes, [source] { source.Complete(); });
  });
}

ShardMoves::ShardMoves(EventLoop* loop, SimLane::Kind lanes, Wires* wires,
                       const SimulatedEngine* engine,
                       std::vector<StepTraffic>* traffic)
    : timed_(lanes == SimLane::Kind::kQueue),
      wires_(wires),
      engine_(engine),
      traffic_(traffic),
      drive_(loop, wires),
      shards_(engine->chunks.size()),
      ahead_loads_(engine->chunks.size()),
      staging_(
          static_cast<size_t>(engine->staging_slots - engine->fetch_slots)),
      fetch_staging_(static_cast<size_t>(engine->fetch_slots)),
      to_device_(loop, lanes),
      back_to_device_(loop, lanes),
      from_device_(loop, lanes),
      ahead_(loop, lanes) {}

void ShardMoves::AddReader(ChunkId chunk, StateKind state, SimEvent reader) {
  std::vector<SimEvent>& readers = At(chunk, state).readers;
  std::erase_if(readers, [](const SimEvent& e) { return e.done(); });
  if (!reader.done()) readers.push_back(std::move(reader));
}

SimEvent ShardMoves::WriteReady(ChunkId chunk, StateKind state) {
  const Shard& shard = At(chunk, state);
  std::vector<SimEvent> waiting;
  for (const SimEvent& reader : shard.readers) {
    if (!reader.done()) waiting.push_back(reader);
  }
  if (waiting.empty()) return shard.written;
  waiting.push_back(shard.written);
  return AllOf(waiting);
}

void ShardMoves::SetWritten(ChunkId chunk, StateKind state, SimEvent written) {
  Shard& shard = At(chunk, state);
  shard.written = std::move(written);
  shard.readers.clear();
}

SimEvent ShardMoves::TakeFrom(std::deque<SimEvent>& slots) {
  CASTOR_CHECK(!slots.empty());
  SimEvent slot = std::move(slots.front());
  slots.pop_front();
  return slot;
}

SimEvent ShardMoves::Copy(SimLane& lane, ChunkId chunk, Tier from, Tier to,
                          Bytes bytes) {
  Count(chunk, from, to, bytes);
  QueueTraffic(lane, wires_,
               to == Tier::kDevice ? Traffic::kToDevice : Traffic::kFromDevice,
               bytes);
  return lane.Record();
}

SimEvent ShardMoves::MoveExtent(ChunkId chunk, StateKind state, bool read,
                                const SimEvent& start, DrivePriority priority,
                                DriveQueue::Ticket* ticket) {
  const SimulatedState& facts = Facts(chunk, state);
  const Bytes extent = RoundUp(facts.bytes, kDriveBlock);
  Count(chunk, read ? Tier::kNvme : Tier::kHost,
        read ? Tier::kHost : Tier::kNvme, extent);
  if (!timed_) return SimEvent();
  return drive_.Move(read ? Traffic::kDriveRead : Traffic::kDriveWrite,
                     facts.offset, extent, start, priority, ticket);
}

SimEvent ShardMoves::Load(ChunkId chunk, StateKind state, Bytes size,
                          const SimEvent& after, RunCause cause) {
  const bool ahead = cause == RunCause::kPrefetch;
  const bool drive = home(chunk, state) == Tier::kNvme;
  std::shared_ptr<AheadLoad> load;
  if (ahead) load = ahead_loads_[chunk.index()] = std::make_shared<AheadLoad>();
  SimEvent there = At(chunk, state).written;
  if (drive) {
    there =
        MoveExtent(chunk, state, true, Both(there, TakeFrom(FetchSlots())),
                   ahead ? DrivePriority::kPrefetch : DrivePriority::kDemand,
                   ahead ? &load->read : nullptr);
    AddReader(chunk, state, there);
  }
  SimEvent end;
  if (ahead) {
    Count(chunk, Tier::kHost, Tier::kDevice, size);
    load->size = size;
    load->extent = RoundUp(Facts(chunk, state).bytes, kDriveBlock);
    ahead_.Wait(after);
    ahead_.Wait(there);
    ahead_.RunAsync([this, load](const SimSource& copied) {
      if (load->phase == AheadLoad::Phase::kCancelled) {
        return copied.Complete();
      }
      load->phase = AheadLoad::Phase::kBegun;
      if (load->size == Bytes(0)) return copied.Complete();
      wires_->Begin(Traffic::kToDevice, load->size,
                    [copied] { copied.Complete(); });
    });
    end = ahead_.Record();
  } else {
    to_device_.Wait(after);
    to_device_.Wait(there);
    end = Copy(to_device_, chunk, Tier::kHost, Tier::kDevice, size);
  }
  if (drive) {
    FetchSlots().push_back(end);
  } else {
    AddReader(chunk, state, end);
  }
  return end;
}

void ShardMoves::Raise(ChunkId chunk) {
  const std::shared_ptr<AheadLoad>& load = ahead_loads_[chunk.index()];
  if (load != nullptr) drive_.Raise(load->read);
}

bool ShardMoves::Cancel(ChunkId chunk) {
  const std::shared_ptr<AheadLoad>& load = ahead_loads_[chunk.index()];
  if (load == nullptr || load->phase != AheadLoad::Phase::kWaiting) {
    return false;
  }
  load->phase = AheadLoad::Phase::kCancelled;
  Count(chunk, Tier::kHost, Tier::kDevice, load->size, -1);
  // What has not gone to the drive need not.
  if (drive_.Cancel(load->read)) {
    Count(chunk, Tier::kNvme, Tier::kHost, load->extent, -1);
  }
  return true;
}

SimEvent ShardMoves::Store(ChunkId chunk, StateKind state, Bytes size,
                           const SimEvent& after) {
  from_device_.Wait(after);
  if (home(chunk, state) != Tier::kNvme) {
    from_device_.Wait(WriteReady(chunk, state));
    SimEvent end = Copy(from_device_, chunk, Tier::kDevice, Tier::kHost, size);
    SetWritten(chunk, state, end);
    return end;
  }
  from_device_.Wait(TakeFrom(staging_));
  SimEvent copied = Copy(from_device_, chunk, Tier::kDevice, Tier::kHost, size);
  const SimEvent end =
      MoveExtent(chunk, state, false, Both(WriteReady(chunk, state), copied),
                 DrivePriority::kWriteBack);
  SetWritten(chunk, state, end);
  staging_.push_back(end);
  // The device memory may be reused once it is copied out.
  return copied;
}

Result<std::vector<ShardMoves::Window>> ShardMoves::Open(
    std::span<const Request> requests) {
  int64_t slots = 0;
  for (const Request& request : requests) slots += NeedsStaging(request);
  const int64_t all = engine_->staging_slots - engine_->fetch_slots;
  if (slots > all) {
    return Infeasible(fmt::format(
        "{} staging slots of host memory are needed at once and there are {}",
        slots, all));
  }
  std::vector<Window> windows;
  for (const Request& request : requests) {
    Window window{request, SimEvent(), SimEvent(), NeedsStaging(request)};
    if (window.staged) window.staging = TakeFrom(staging_);
    window.ready = Arrive(request, window.staging);
    windows.push_back(std::move(window));
  }
  return windows;
}

SimEvent ShardMoves::Arrive(const Request& request, const SimEvent& staging) {
  if (request.mode == Mode::kScratch) {
    from_device_.Wait(staging);
    from_device_.Wait(request.after);
    return Copy(from_device_, request.chunk, Tier::kDevice, Tier::kHost,
                request.size);
  }
  const ChunkId chunk = request.chunk;
  const StateKind state = request.state;
  const SimEvent& written = At(chunk, state).written;
  switch (home(chunk, state)) {
    case Tier::kHost:
      return request.mode == Mode::kRead ? written : WriteReady(chunk, state);
    case Tier::kNvme: {
      // Part of an extent cannot be written alone, so the rest is read as well.
      const bool whole = request.size == bytes(chunk, state);
      if (request.mode == Mode::kWrite && whole) return staging;
      const SimEvent read = MoveExtent(
          chunk, state, true, Both(written, staging), request.priority);
      AddReader(chunk, state, read);
      return read;
    }
    case Tier::kDevice:
      break;
  }
  if (request.mode == Mode::kWrite) return staging;
  from_device_.Wait(staging);
  from_device_.Wait(written);
  const SimEvent read =
      Copy(from_device_, chunk, Tier::kDevice, Tier::kHost, request.size);
  AddReader(chunk, state, read);
  return read;
}

void ShardMoves::Close(const Window& window, const SimEvent& after) {
  const Request& request = window.request;
  const SimEvent used = Both(window.ready, after);
  if (request.mode == Mode::kScratch) return staging_.push_back(used);
  const ChunkId chunk = request.chunk;
  const StateKind state = request.state;
  const bool read_only = request.mode == Mode::kRead;
  const Tier at = home(chunk, state);
  if (at == Tier::kHost) {
    if (read_only) return AddReader(chunk, state, used);
    return SetWritten(chunk, state, used);
  }
  SimEvent end = used;
  if (!read_only && at == Tier::kNvme) {
    end = MoveExtent(chunk, state, false, Both(WriteReady(chunk, state), used),
                     request.priority == DrivePriority::kOptimizer
                         ? request.priority
                         : DrivePriority::kWriteBack);
    SetWritten(chunk, state, end);
  } else if (!read_only) {
    back_to_device_.Wait(used);
    back_to_device_.Wait(WriteReady(chunk, state));
    end =
        Copy(back_to_device_, chunk, Tier::kHost, Tier::kDevice, request.size);
    SetWritten(chunk, state, end);
  }
  staging_.push_back(end);
}

}  // namespace castor::internal
