// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Work on windows that begins by urgency. QueueWork finds out, in the order of
// the calls, where bytes are and what they wait for, and tells shards when the
// work will be over. So all later calls of the store are ordered behind work
// that has not begun. What then runs touches no shard.
//
// The work's staging is its own. Only work that is ready takes of it, all at
// once, and gives all back when its own transfers have ended. Work that
// waits holds its place only while no earlier work on the same pieces is under
// way. So no order in which work is picked can make others wait in a circle.

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "offload/shards/queued_work.h"
#include "offload/shards/shard_store.h"

namespace castor {
namespace {

bool Over(const Event& event) { return event.done(); }

bool IsDropped(const WindowWork& work) {
  return work.dropped != nullptr && *work.dropped;
}

}  // namespace

int64_t ShardStore::StagedOf(std::span<const WindowRequest> windows) const {
  return std::count_if(
      windows.begin(), windows.end(),
      [&](const WindowRequest& request) { return NeedsStaging(request); });
}

bool ShardStore::QueuesWork(std::span<const WindowRequest> windows) const {
  if (StagedOf(windows) > std::ssize(work_->slots)) return false;
  // The rest of an extent would be old in a spare place.
  return std::all_of(windows.begin(), windows.end(),
                     [&](const WindowRequest& request) {
                       if (!request.aside) return true;
                       const Shard& shard = At(request.chunk, request.state);
                       return AsideTier(shard) != Tier::kNvme ||
                              PieceAt(shard, request.range).range.size() ==
                                  request.range.size();
                     });
}

bool ShardStore::WorkWaits() const { return work_->not_begun > 0; }

Event ShardStore::QueueWork(WindowWork work) {
  CASTOR_CHECK(QueuesWork(work.windows));
  for (const WindowRequest& request : work.windows) {
    CASTOR_CHECK(!request.aside || !OthersWait());
  }
  auto queued = std::make_shared<QueuedWork>();
  if (WaitsForWork(work.windows)) work.place = PickPlace::kGivesWay;
  for (const WindowRequest& request : work.windows) {
    if (request.mode == WindowMode::kScratch) continue;
    PieceAt(At(request.chunk, request.state), request.range)
        .work.push_back(queued->over.event());
  }
  queued->work = std::move(work);
  ++work_->not_begun;
  const EventSource copied;
  const Event result = copied.event();
  if (!OthersWait()) {
    Enlist(queued, copied);
    return result;
  }
  const auto each = [](ShardStore& store, const QueuedWork& those,
                       void (*call)(ShardStore&, Shard&)) {
    for (const WindowRequest& request : those.work.windows) {
      if (request.mode == WindowMode::kScratch) continue;
      call(store, store.At(request.chunk, request.state));
    }
  };
  each(*this, *queued, [](ShardStore&, Shard& shard) { ++shard.holds; });
  const Status asked = staging_->Take(
      0, StagingUse::kWork, [this, each, queued, copied](std::span<Slot>) {
        Enlist(queued, copied);
        each(*this, *queued,
             [](ShardStore& store, Shard& shard) { store.ReleaseHold(shard); });
      });
  CASTOR_CHECK(asked.ok());
  return result;
}

bool ShardStore::WaitsForWork(std::span<const WindowRequest> windows) {
  bool waits = false;
  for (const WindowRequest& request : windows) {
    if (request.mode == WindowMode::kScratch) continue;
    std::vector<Event>& before =
        PieceAt(At(request.chunk, request.state), request.range).work;
    std::erase_if(before, Over);
    waits |= !before.empty();
  }
  return waits;
}

void ShardStore::Enlist(const std::shared_ptr<QueuedWork>& queued,
                        const EventSource& copied) {
  queued->step = step_;
  std::vector<Event> before;  // what the work waits for
  std::vector<Event> copies;  // of what is passing
  for (const WindowRequest& request : queued->work.windows) {
    WorkLeg& leg = queued->legs.emplace_back(LegOf(request));
    if (request.mode == WindowMode::kScratch) {
      before.push_back(request.after);
      copies.push_back(leg.read.event());
    } else {
      EnlistLeg(leg, before);
    }
    if (leg.reads) Count(Describe(leg, /*read=*/true, step_));
    if (leg.drive_write || leg.device_write) {
      Count(Describe(leg, /*read=*/false, step_));
    }
  }
  AllOf(copies).OnDone(
      [copied](const Status& status) { copied.Complete(status); });
  if (work_under_way_.size() >= most_under_way_) {
    std::erase_if(work_under_way_, Over);
    most_under_way_ = std::max<size_t>(64, 2 * work_under_way_.size());
  }
  work_under_way_.push_back(queued->over.event());
  const int64_t staged = StagedOf(queued->work.windows);
  if (staged == 0) {
    AllOf(before).OnDone([this, queued](const Status& status) {
      BeginWork(queued, {}, status);
    });
    return;
  }
  work_->picks.Add(
      queued->work.key, static_cast<size_t>(staged), queued->work.place,
      AllOf(before),
      [this, queued](std::span<std::byte*> slots, const Status& status) {
        BeginWork(queued, slots, status);
      });
}

void ShardStore::EnlistLeg(WorkLeg& leg, std::vector<Event>& before) {
  const WindowRequest& request = leg.request;
  Shard& shard = At(request.chunk, request.state);
  Piece& piece = PieceAt(shard, request.range);
  if (request.aside) {
    before.push_back(piece.written);
    before.push_back(shard.aside->slot.free_after);
    // The home stays as it is, even where the work fails.
    AddReader(piece, EndOf(leg.end.event()));
    shard.aside->parts.push_back({request.range, leg.end.event()});
  } else if (leg.writes()) {
    before.push_back(WriteReady(piece));
    SetWritten(shard, piece, leg.end.event());
  } else {
    before.push_back(piece.written);
    AddReader(piece, leg.end.event());
  }
}

ShardStore::WorkLeg ShardStore::LegOf(const WindowRequest& request) {
  WorkLeg leg;
  leg.request = request;
  leg.staged = NeedsStaging(request);
  if (request.mode == WindowMode::kScratch) {
    leg.reads = true;
    return leg;
  }
  Shard& shard = At(request.chunk, request.state);
  const Piece& piece = PieceAt(shard, request.range);
  leg.home = shard.home;
  leg.place = PlaceOf(shard, piece);
  leg.begin = request.range.begin - piece.range.begin;
  const bool drive = leg.home == Tier::kNvme;
  if (drive) {
    leg.drive = leg.drive_to = options_.pools->nvme_at(leg.place.offset);
  }
  if (leg.home == Tier::kHost) leg.data = leg.place.data + leg.begin.count();
  // Part of an extent cannot be written alone, so the rest is read as well.
  const bool whole = request.range.size() == piece.range.size();
  leg.reads = leg.home != Tier::kHost &&
              (request.mode != WindowMode::kWrite || (drive && !whole));
  leg.drive_write = drive && leg.writes();
  leg.device_write = leg.home == Tier::kDevice && leg.writes();
  if (!request.aside) return leg;
  const Place place = PlaceIn(shard.aside->tier, shard.aside->slot, piece);
  if (shard.aside->tier == Tier::kNvme) {
    leg.drive_to = options_.pools->nvme_at(place.offset);
    leg.drive_write = true;
    return leg;
  }
  leg.to = place.data + leg.begin.count();
  if (leg.home == Tier::kDevice) leg.data = leg.to;
  leg.device_write = false;  // when it is committed
  return leg;
}

RunEvent ShardStore::Describe(const WorkLeg& leg, bool read,
                              int32_t step) const {
  const bool drive = read ? leg.home == Tier::kNvme : leg.drive_write;
  const Tier away = drive ? Tier::kNvme : Tier::kDevice;
  return Describe(leg.request.chunk, leg.request.state,
                  read ? away : Tier::kHost, read ? Tier::kHost : away,
                  drive ? leg.place.extent : leg.request.range.size(),
                  leg.request.cause, step);
}

void ShardStore::BeginWork(const std::shared_ptr<QueuedWork>& queued,
                           std::span<std::byte* const> slots,
                           const Status& ready) {
  --work_->not_begun;
  queued->slots.assign(slots.begin(), slots.end());
  const bool runs = ready.ok() && !IsDropped(queued->work);
  std::vector<Event> arrived;
  for (WorkLeg& leg : queued->legs) {
    if (leg.staged) {
      // What is read in host memory is written beside it.
      (leg.home == Tier::kHost ? leg.to : leg.data) = slots.front();
      slots = slots.subspan(1);
    }
    if (!leg.reads) continue;
    if (runs) {
      arrived.push_back(ReadLeg(leg, queued->step));
      arrived.back().OnDone(
          [read = leg.read](const Status& status) { read.Complete(status); });
    } else {
      leg.read.Complete(ready);
    }
    if (leg.home == Tier::kNvme) leg.data += leg.begin.count();
  }
  if (!runs) return EndWork(queued, ready);
  AllOf(arrived).OnDone([this, queued](const Status& status) {
    if (!status.ok() || IsDropped(queued->work)) {
      return EndWork(queued, status);
    }
    std::vector<WorkBytes> at;
    for (const WorkLeg& leg : queued->legs) {
      at.push_back({leg.data, leg.to != nullptr ? leg.to : leg.data});
    }
    EventSource used;
    used.event().OnDone(
        [this, queued](const Status& done) { EndWork(queued, done); });
    queued->work.run(at, std::move(used));
  });
}

Event ShardStore::ReadLeg(const WorkLeg& leg, int32_t step) {
  const RunEvent event = Describe(leg, /*read=*/true, step);
  if (leg.home == Tier::kNvme) {
    return Transfer(leg.drive, leg.data, leg.place.extent, Event(), event);
  }
  const std::byte* const from = leg.request.mode == WindowMode::kScratch
                                    ? leg.request.from
                                    : leg.place.data + leg.begin.count();
  std::lock_guard lock(work_->mutex);
  return Copy(*work_->from_device, leg.data, from, event);
}

void ShardStore::WriteLeg(const std::shared_ptr<QueuedWork>& queued,
                          const WorkLeg& leg) {
  const RunEvent event = Describe(leg, /*read=*/false, queued->step);
  const auto end = [source = leg.end](const Status& status) {
    source.Complete(status);
  };
  if (leg.drive_write) {
    std::byte* const from = leg.to != nullptr ? leg.to : leg.data;
    Transfer(leg.drive_to, from - leg.begin.count(), leg.place.extent, Event(),
             event)
        .OnDone(end);
    return;
  }
  work_->ups.Add(
      queued->work.key, 1, PickPlace::kGivesWay, Event(),
      [this, queued, &leg, event, end](std::span<int> turn, const Status&) {
        Event copied;
        {
          std::lock_guard lock(work_->mutex);
          copied = Copy(*work_->back_to_device,
                        leg.place.data + leg.begin.count(), leg.data, event);
        }
        copied.OnDone([ups = work_->ups, number = turn[0],
                       end](const Status& status) mutable {
          ups.AddTurn(number);
          end(status);
        });
      });
}

void ShardStore::EndWork(const std::shared_ptr<QueuedWork>& queued,
                         const Status& status) {
  std::vector<Event> ends;
  const bool writes = status.ok() && !IsDropped(queued->work);
  for (const WorkLeg& leg : queued->legs) {
    if (leg.request.mode == WindowMode::kScratch) continue;
    ends.push_back(leg.end.event());
    if (writes && (leg.drive_write || leg.device_write)) {
      WriteLeg(queued, leg);
    } else {
      leg.end.Complete(status);
    }
  }
  AllOf(ends).OnDone([picks = work_->picks, queued](const Status&) mutable {
    for (std::byte* const slot : queued->slots) picks.AddTurn(slot);
    queued->over.Complete();
  });
}

}  // namespace castor
