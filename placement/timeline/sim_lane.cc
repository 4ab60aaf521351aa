// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/timeline/sim_lane.h"

#include <utility>

namespace castor::internal {
namespace {

// As offload/lane.cc, where a lane's turn on the executor ends after as many.
constexpr int kOperationsPerTurn = 64;

}  // namespace

void SimLane::Wait(const SimEvent& event) {
  if (event.done()) return;
  if (kind_ == Kind::kThread) return loop_->RunUntil(event);
  Queue(event);
}

void SimLane::Run(Work work) {
  if (kind_ == Kind::kThread) return work();
  Queue(std::move(work));
}

void SimLane::RunAsync(AsyncWork work) {
  if (kind_ == Kind::kQueue) return Queue(std::move(work));
  const SimSource source;
  work(source);
  loop_->RunUntil(source.event());
}

SimEvent SimLane::Record() {
  if (idle_) return SimEvent();
  const SimSource source;
  Queue(source);
  return source.event();
}

void SimLane::Queue(Operation operation) {
  operations_.push_back(std::move(operation));
  if (std::exchange(idle_, false)) loop_->Post([this] { Turn(); });
}

void SimLane::Turn() {
  for (int i = 0;; ++i) {
    if (operations_.empty()) {
      idle_ = true;
      return;
    }
    if (i == kOperationsPerTurn) break;
    Operation operation = std::move(operations_.front());
    operations_.pop_front();
    if (!Perform(operation)) return;
  }
  loop_->Post([this] { Turn(); });
}

bool SimLane::Perform(Operation& operation) {
  if (const auto* event = std::get_if<SimEvent>(&operation)) {
    return Await(*event);
  }
  if (const auto* work = std::get_if<Work>(&operation)) {
    (*work)();
    return true;
  }
  if (const auto* start = std::get_if<AsyncWork>(&operation)) {
    const SimSource source;
    (*start)(source);
    return Await(source.event());
  }
  std::get<SimSource>(operation).Complete();
  return true;
}

bool SimLane::Await(const SimEvent& event) {
  if (event.done()) return true;
  event.OnDone([this] { loop_->Post([this] { Turn(); }); });
  return false;
}

}  // namespace castor::internal
