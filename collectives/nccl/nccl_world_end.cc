// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How a world ends for the thread that serves it: by a failure, after which no
// buffer is let go while a device may touch it, or because all leave.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/nccl/nccl_world.h"

namespace castor::internal {
namespace {

// How long buffers are kept after an end for ranks that say nothing, and how
// long leaving waits for the others.
constexpr int64_t kQuietNs = 10'000'000'000;

}  // namespace

void NcclWorld::SayEnd(Status reason) {
  if (over_ || failed_) return;
  failed_ = true;
  plane_.Say({.kind = ControlKind::kEnd, .status = std::move(reason)});
}

void NcclWorld::EndNow(const Status& reason) {
  over_ = true;
  quiet_by_ns_ = clock_.NowNs() + kQuietNs;
  std::vector<std::shared_ptr<Operation>> untouched;
  {
    std::lock_guard lock(mutex_);
    ended_ = reason;
    changed_.notify_all();
    for (const auto& [position, operation] : open_) {
      untouched.push_back(operation);
    }
  }
  if (streams_ != nullptr) streams_->Abort();
  // What may be on the device holds its buffers until no device touches them.
  if (!to_issue_.empty() && to_issue_.front()->work.begun) {
    Operation& half = *to_issue_.front();
    half.work.done = streams_->EndOf(half.work);
    on_device_.push_back(to_issue_.front());
  }
  to_issue_.clear();
  for (const auto& operation : untouched) {
    if (std::ranges::find(on_device_, operation) == on_device_.end()) {
      Complete(*operation, reason);
    }
  }
}

void NcclWorld::CheckQuiet() {
  if (!over_) return;
  const bool here = std::ranges::all_of(
      on_device_, [](const auto& each) { return each->work.done.done(); });
  if (here && !said_quiet_) {
    said_quiet_ = true;
    plane_.Say({.kind = ControlKind::kQuiet});
  }
  if (!all_quiet_ && clock_.NowNs() < quiet_by_ns_) return;
  const Status reason = ended();
  for (const auto& operation : on_device_) Complete(*operation, reason);
  on_device_.clear();
}

bool NcclWorld::MayLeave() {
  {
    std::lock_guard lock(mutex_);
    if (!stopping_ || !open_.empty() || !tasks_.empty()) return false;
    // Reasons that came last are still said.
    if (!ends_.empty()) return false;
  }
  // Rank 0 tells the others when all are quiet.
  return !over_ || options_.rank != 0 || all_quiet_ ||
         clock_.NowNs() >= quiet_by_ns_;
}

void NcclWorld::Leave() {
  plane_.Say({.kind = ControlKind::kLeave,
              .rank = options_.rank,
              .position = leave_at_});
  std::vector<ControlMessage> heard;
  plane_.Serve(&heard);  // what the leaving makes of those who wait for it
  const int64_t deadline_ns = clock_.NowNs() + kQuietNs;
  if (streams_ != nullptr && !over_) streams_->Finish(deadline_ns);
  streams_.reset();
  plane_.Close(deadline_ns);
}

}  // namespace castor::internal
