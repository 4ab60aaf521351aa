// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Passes over states where they live. Deposits, squares, updates and parameters
// that are restored say what they do in either place (zero_engine_parts.h);
// here is what all of them wait for, and who waits for them.

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/engine/zero_engine_impl.h"

namespace castor {

using internal::HomePass;
using internal::StateBytes;

Event ZeroEngine::Impl::RunAtHome(HomePass pass) {
  const bool on_device = std::all_of(
      pass.uses.begin(), pass.uses.end(), [&](const HomePass::Use& use) {
        return store_->home(pass.chunk, use.state) == Tier::kDevice;
      });
  if (on_device) return RunOnDevice(pass);
  std::vector<Event> copied;
  for (const ShardRange& part : WithinPieces(pass.chunk, pass.range)) {
    copied.push_back(RunOnHost(pass, part));
  }
  return copied.size() == 1 ? copied.front() : AllOf(copied);
}

Event ZeroEngine::Impl::RunOnDevice(HomePass& pass) {
  const ChunkId chunk = pass.chunk;
  StateBytes bytes;
  if (pass.passing != nullptr) {
    bytes.passing =
        pass.passing->data +
        RangeBytes(chunk, StateKind::kGrad, pass.range).begin.count();
    device_lane_->Wait(pass.passing->ready);
  }
  for (const auto& [state, mode] : pass.uses) {
    bytes.of(state) = store_->device_data(chunk, state) +
                      RangeBytes(chunk, state, pass.range).begin.count();
    device_lane_->Wait(mode == WindowMode::kRead
                           ? store_->written(chunk, state)
                           : store_->WriteReady(chunk, state));
  }
  const auto event = BeginUpdate(pass, pass.range, *device_lane_);
  pass.on_device(bytes);
  if (event != nullptr) RecordSpan(*device_lane_, event, false);
  Event done = device_lane_->Record();
  for (const auto& [state, mode] : pass.uses) {
    if (mode == WindowMode::kRead) {
      store_->AddReader(chunk, state, done);
    } else {
      store_->SetWritten(chunk, state, done);
    }
  }
  return done;
}

Event ZeroEngine::Impl::RunOnHost(HomePass& pass, ShardRange part) {
  // What the pass works on, together: it never waits for some of it while it
  // holds the rest.
  std::vector<WindowRequest> requests;
  requests.reserve(pass.uses.size() + 1);
  const auto want = [&](StateKind state, WindowMode mode) -> WindowRequest& {
    WindowRequest& request = requests.emplace_back();
    request.chunk = pass.chunk;
    request.state = state;
    request.range = RangeBytes(pass.chunk, state, part);
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
  Result<std::vector<HostWindow>> opened = store_->OpenWindows(requests);
  if (!opened.ok()) {
    return Event::Failed(Fail(opened.status()));  // Step returns it
  }
  std::vector<HostWindow>& windows = *opened;
  const Event copied = passing ? windows.front().ready : Event();
  HostBytes grad;
  std::array<HostBytes, kStateKinds> homes;
  for (const HostWindow& window : windows) {
    (window.mode == WindowMode::kScratch
         ? grad
         : homes[static_cast<size_t>(window.state)]) = window.bytes();
    host_lane_->Wait(window.ready);
  }
  const auto event = BeginUpdate(pass, part, *host_lane_);
  HomePass::HostWork work = pass.on_host(part);
  QueuePass(pass.chunk, pass.kind, work.traffic,
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
  if (event != nullptr) RecordSpan(*host_lane_, event, false);
  const Event done = host_lane_->Record();
  // The staging of a gradient, which comes first, is free before what was
  // written goes home.
  for (HostWindow& window : windows) {
    store_->CloseWindow(std::move(window), done);
  }
  return copied;
}

std::shared_ptr<RunEvent> ZeroEngine::Impl::BeginUpdate(const HomePass& pass,
                                                        ShardRange part,
                                                        Lane& lane) {
  if (pass.kind != HostPass::kUpdate) return nullptr;
  const Elements count = part.end - part.begin;
  const bool on_device = &lane == device_lane_.get();
  auto event = std::make_shared<RunEvent>(
      EventFor(RunEventKind::kUpdate, pass.chunk, pass.cause));
  event->bytes = count.count() * 4;
  if (!on_device) event->from = event->to = Tier::kHost;
  RecordSpan(lane, event, true);
  if (options_.dry && options_.dry->traffic != nullptr) {
    StepTraffic& counted = options_.dry->traffic->Of(pass.chunk);
    (on_device ? counted.updated_on_device : counted.updated_on_host) += count;
  }
  return event;
}

void ZeroEngine::Impl::QueuePass(ChunkId chunk, HostPass pass, Bytes traffic,
                                 Lane::Work work) {
  if (options_.dry && options_.dry->traffic != nullptr) {
    StepTraffic& counted = options_.dry->traffic->Of(chunk);
    (pass == HostPass::kUpdate ? counted.update_bytes : counted.sum_bytes) +=
        traffic;
  }
  HostPasses& passes = options_.host_passes != nullptr ? *options_.host_passes
                                                       : HostPasses::Machine();
  passes.Queue(*host_lane_, pass, traffic, std::move(work));
}

}  // namespace castor
