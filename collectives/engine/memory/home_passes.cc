// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/memory/home_passes.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace castor::internal {

Event HomePasses::Run(HomePass pass) {
  if (IsOnDevice(pass)) return RunOnDevice(pass);
  std::vector<Event> copied;
  for (const ShardRange& part : memory_.WithinPieces(pass.chunk, pass.range)) {
    copied.push_back(RunOnHost(pass, part));
  }
  return copied.size() == 1 ? copied.front() : AllOf(copied);
}

bool HomePasses::IsOnDevice(const HomePass& pass) {
  return std::all_of(
      pass.uses.begin(), pass.uses.end(), [&](const HomePass::Use& use) {
        return memory_.store().home(pass.chunk, use.state) == Tier::kDevice;
      });
}

bool HomePasses::RunsAside(const HomePass& pass) {
  if (IsOnDevice(pass)) return false;
  const std::vector<ShardRange> parts =
      memory_.WithinPieces(pass.chunk, pass.range);
  return std::all_of(parts.begin(), parts.end(), [&](ShardRange part) {
    return memory_.store().QueuesWork(RequestsOf(pass, part));
  });
}

Event HomePasses::RunOnDevice(HomePass& pass) {
  const ChunkId chunk = pass.chunk;
  StateBytes bytes;
  if (pass.passing != nullptr) {
    bytes.passing =
        pass.passing->data +
        model_.RangeBytes(chunk, StateKind::kGrad, pass.range).begin.count();
    memory_.device_lane().Wait(pass.passing->ready);
  }
  for (const auto& [state, mode] : pass.uses) {
    bytes.of(state) = memory_.store().device_data(chunk, state) +
                      model_.RangeBytes(chunk, state, pass.range).begin.count();
    memory_.device_lane().Wait(mode == WindowMode::kRead
                                   ? memory_.store().written(chunk, state)
                                   : memory_.store().WriteReady(chunk, state));
  }
  const auto event = NoteUpdate(pass, pass.range, /*on_device=*/true);
  if (event != nullptr) record_.Begin(memory_.device_lane(), event);
  pass.on_device(bytes);
  if (event != nullptr) record_.End(memory_.device_lane(), event);
  Event done = memory_.device_lane().Record();
  for (const auto& [state, mode] : pass.uses) {
    if (mode == WindowMode::kRead) {
      memory_.store().AddReader(chunk, state, done);
    } else {
      memory_.store().SetWritten(chunk, state, done);
    }
  }
  return done;
}

Event HomePasses::RunOnHost(HomePass& pass, ShardRange part) {
  std::vector<WindowRequest> requests = RequestsOf(pass, part);
  return pass.next_use && memory_.store().QueuesWork(requests)
             ? RunByUrgency(pass, part, std::move(requests))
             : RunInTurn(pass, part, requests);
}

// What the pass works on, together: the pass never waits for some of the
// windows while it holds the others.
std::vector<WindowRequest> HomePasses::RequestsOf(const HomePass& pass,
                                                  ShardRange part) {
  std::vector<WindowRequest> requests;
  requests.reserve(pass.uses.size() + 1);
  const auto want = [&](StateKind state, WindowMode mode) -> WindowRequest& {
    WindowRequest& request = requests.emplace_back();
    request.chunk = pass.chunk;
    request.state = state;
    request.range = model_.RangeBytes(pass.chunk, state, part);
    request.mode = mode;
    request.cause = pass.cause;
    request.aside = pass.aside && mode != WindowMode::kRead;
    return request;
  };
  if (pass.passing != nullptr) {
    WindowRequest& grad = want(StateKind::kGrad, WindowMode::kScratch);
    grad.aside = false;
    grad.from = pass.passing->data + grad.range.begin.count();
    grad.after = pass.passing->ready;
  }
  for (const auto& [state, mode] : pass.uses) want(state, mode);
  return requests;
}

Event HomePasses::RunInTurn(HomePass& pass, ShardRange part,
                            const std::vector<WindowRequest>& requests) {
  Result<std::vector<HostWindow>> opened =
      memory_.store().OpenWindows(requests);
  if (!opened.ok()) {
    return Event::Failed(health_.Fail(opened.status()));  // Step returns it
  }
  std::vector<HostWindow>& windows = *opened;
  const Event copied =
      pass.passing != nullptr ? windows.front().ready : Event();
  HostBytes grad;
  std::array<HostBytes, kStateKinds> homes;
  for (const HostWindow& window : windows) {
    (window.mode == WindowMode::kScratch
         ? grad
         : homes[static_cast<size_t>(window.state)]) = window.bytes();
    lanes_.host->Wait(window.ready);
  }
  const auto event = NoteUpdate(pass, part, /*on_device=*/false);
  if (event != nullptr) record_.Begin(*lanes_.host, event);
  HomePass::HostWork work = pass.on_host(part);
  Count(pass.chunk, pass.kind, work.traffic);
  host_passes().Queue(*lanes_.host, pass.kind, work.traffic,
                      [run = std::move(work.run), grad, homes]() mutable {
                        StateBytes bytes;
                        bytes.passing = grad.get();
                        for (int k = 0; k < kStateKinds; ++k) {
                          bytes.of(static_cast<StateKind>(k)) =
                              homes[static_cast<size_t>(k)].get();
                        }
                        run(bytes);
                        return OkStatus();
                      });
  if (event != nullptr) record_.End(*lanes_.host, event);
  const Event done = lanes_.host->Record();
  // The staging of a gradient, which comes first, is free before what was
  // written goes home.
  for (HostWindow& window : windows) {
    memory_.store().CloseWindow(std::move(window), done);
  }
  return copied;
}

Event HomePasses::RunByUrgency(HomePass& pass, ShardRange part,
                               std::vector<WindowRequest> requests) {
  // What the lane that takes the pass needs.
  struct Queued {
    HomePass::HostWork work;
    HostPass kind;
    std::vector<WindowRequest> windows;
    std::shared_ptr<RunEvent> event;  // null: not recorded
    const EngineRecord* record;
    HostPasses* passes;
    WorkDropped dropped;
  };
  auto queued = std::make_shared<Queued>(
      Queued{pass.on_host(part), pass.kind, requests,
             NoteUpdate(pass, part, /*on_device=*/false), &record_,
             &host_passes(), pass.dropped});
  Count(pass.chunk, pass.kind, queued->work.traffic);
  const auto run_on =
      [queued](Lane& lane, std::span<const WorkBytes> at,
               const std::shared_ptr<UniqueFunction<void()>>& next) -> Event {
    if (queued->dropped != nullptr && *queued->dropped) return Event();
    StateBytes bytes;
    if (queued->passes->overlap()) bytes.begun = next.get();
    for (size_t i = 0; i < at.size(); ++i) {
      const WindowRequest& window = queued->windows[i];
      if (window.mode == WindowMode::kScratch) {
        bytes.passing = at[i].data;
        continue;
      }
      bytes.of(window.state) = at[i].data;
      if (at[i].to != at[i].data) bytes.aside(window.state) = at[i].to;
    }
    if (queued->event != nullptr) queued->record->Begin(lane, queued->event);
    queued->passes->Queue(lane, queued->kind, queued->work.traffic,
                          [queued, bytes, next] {
                            queued->work.run(bytes);
                            return OkStatus();
                          });
    if (queued->event != nullptr) queued->record->End(lane, queued->event);
    return lane.Record();
  };
  WindowWork work;
  work.windows = std::move(requests);
  work.key = *pass.next_use;
  work.place = pass.place;
  work.dropped = pass.dropped;
  struct Arrival {
    std::vector<WorkBytes> at;
    EventSource used;
    EventSource arrived;
    std::optional<EventSource> over;
  };
  auto arrival = std::make_shared<Arrival>();
  // Others may have the staging that this one would take, and wait for a lane.
  ShardStore& store = memory_.store();
  const PickPlace in_lane =
      store.TakesStaging(work.windows) || store.WaitsForWork(work.windows)
          ? PickPlace::kGivesWay
          : work.place;
  lanes_.updates.Add(
      work.key, 1, in_lane, arrival->arrived.event(),
      [lanes = &lanes_, run_on, arrival = std::weak_ptr<Arrival>(arrival)](
          std::span<size_t> turn, const Status& status) {
        // Early, where workers look for others, or at the end.
        auto next = std::make_shared<UniqueFunction<void()>>(
            [lanes, number = (turn[0] + 1) % kUpdateLanes,
             given = false]() mutable {
              if (!std::exchange(given, true)) lanes->updates.AddTurn(number);
            });
        const std::shared_ptr<Arrival> there = arrival.lock();
        // Where bytes did not arrive there is nothing to do.
        if (!status.ok() || there == nullptr) return (*next)();
        run_on(*lanes->update[turn[0]], there->at, next)
            .OnDone([next, used = there->used,
                     over = there->over](const Status& done) {
              (*next)();
              used.Complete(done);
              if (over) over->Complete(done);
            });
      });
  work.run = [arrival](std::span<const WorkBytes> at, EventSource used) {
    arrival->at.assign(at.begin(), at.end());
    arrival->used = std::move(used);
    arrival->arrived.Complete();
  };
  const bool instant = model_.options.dry && model_.options.dry->instant;
  const Event over = instant ? arrival->over.emplace().event() : Event();
  Event copied = store.QueueWork(std::move(work));
  // Work that takes no time gains nothing by a queue, which takes memory. Where
  // bytes did not arrive, `over` ends with the arrival.
  arrival.reset();
  if (instant && !pass.aside) (void)over.Wait();
  return copied;
}

std::shared_ptr<RunEvent> HomePasses::NoteUpdate(const HomePass& pass,
                                                 ShardRange part,
                                                 bool on_device) {
  if (pass.kind != HostPass::kUpdate) return nullptr;
  const Elements count = part.end - part.begin;
  auto event = std::make_shared<RunEvent>(
      record_.EventFor(RunEventKind::kUpdate, pass.chunk, pass.cause));
  event->bytes = count.count() * 4;
  if (!on_device) event->from = event->to = Tier::kHost;
  if (model_.options.dry && model_.options.dry->traffic != nullptr) {
    StepTraffic& counted = model_.options.dry->traffic->Of(pass.chunk);
    (on_device ? counted.updated_on_device : counted.updated_on_host) += count;
  }
  return event;
}

void HomePasses::Count(ChunkId chunk, HostPass pass, Bytes traffic) {
  if (!model_.options.dry || model_.options.dry->traffic == nullptr) return;
  StepTraffic& counted = model_.options.dry->traffic->Of(chunk);
  (pass == HostPass::kUpdate ? counted.update_bytes : counted.sum_bytes) +=
      traffic;
}

}  // namespace castor::internal
