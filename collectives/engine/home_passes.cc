// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/home_passes.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace castor::internal {

Event HomePasses::Run(HomePass pass) {
  const bool on_device = std::all_of(
      pass.uses.begin(), pass.uses.end(), [&](const HomePass::Use& use) {
        return memory_.store().home(pass.chunk, use.state) == Tier::kDevice;
      });
  if (on_device) return RunOnDevice(pass);
  std::vector<Event> copied;
  for (const ShardRange& part : memory_.WithinPieces(pass.chunk, pass.range)) {
    copied.push_back(RunOnHost(pass, part));
  }
  return copied.size() == 1 ? copied.front() : AllOf(copied);
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
  const auto event = BeginUpdate(pass, pass.range, memory_.device_lane());
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
  // What the pass works on, together: it never waits for some of it while it
  // holds the rest.
  std::vector<WindowRequest> requests;
  requests.reserve(pass.uses.size() + 1);
  const auto want = [&](StateKind state, WindowMode mode) -> WindowRequest& {
    WindowRequest& request = requests.emplace_back();
    request.chunk = pass.chunk;
    request.state = state;
    request.range = model_.RangeBytes(pass.chunk, state, part);
    request.mode = mode;
    request.cause = pass.cause;
    return request;
  };
  const bool passing = pass.passing != nullptr;
  if (passing) {
    WindowRequest& grad = want(StateKind::kGrad, WindowMode::kScratch);
    grad.from = pass.passing->data + grad.range.begin.count();
    grad.after = pass.passing->ready;
  }
  for (const auto& [state, mode] : pass.uses) want(state, mode);
  Result<std::vector<HostWindow>> opened =
      memory_.store().OpenWindows(requests);
  if (!opened.ok()) {
    return Event::Failed(health_.Fail(opened.status()));  // Step returns it
  }
  std::vector<HostWindow>& windows = *opened;
  const Event copied = passing ? windows.front().ready : Event();
  HostBytes grad;
  std::array<HostBytes, kStateKinds> homes;
  for (const HostWindow& window : windows) {
    (window.mode == WindowMode::kScratch
         ? grad
         : homes[static_cast<size_t>(window.state)]) = window.bytes();
    lanes_.host->Wait(window.ready);
  }
  const auto event = BeginUpdate(pass, part, *lanes_.host);
  HomePass::HostWork work = pass.on_host(part);
  Queue(pass.chunk, pass.kind, work.traffic,
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

std::shared_ptr<RunEvent> HomePasses::BeginUpdate(const HomePass& pass,
                                                  ShardRange part, Lane& lane) {
  if (pass.kind != HostPass::kUpdate) return nullptr;
  const Elements count = part.end - part.begin;
  const bool on_device = &lane == &memory_.device_lane();
  auto event = std::make_shared<RunEvent>(
      record_.EventFor(RunEventKind::kUpdate, pass.chunk, pass.cause));
  event->bytes = count.count() * 4;
  if (!on_device) event->from = event->to = Tier::kHost;
  record_.Begin(lane, event);
  if (model_.options.dry && model_.options.dry->traffic != nullptr) {
    StepTraffic& counted = model_.options.dry->traffic->Of(pass.chunk);
    (on_device ? counted.updated_on_device : counted.updated_on_host) += count;
  }
  return event;
}

void HomePasses::Queue(ChunkId chunk, HostPass pass, Bytes traffic,
                       Lane::Work work) {
  if (model_.options.dry && model_.options.dry->traffic != nullptr) {
    StepTraffic& counted = model_.options.dry->traffic->Of(chunk);
    (pass == HostPass::kUpdate ? counted.update_bytes : counted.sum_bytes) +=
        traffic;
  }
  HostPasses& passes = model_.options.host_passes != nullptr
                           ? *model_.options.host_passes
                           : HostPasses::Machine();
  passes.Queue(*lanes_.host, pass, traffic, std::move(work));
}

}  // namespace castor::internal
