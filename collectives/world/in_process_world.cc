// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/world/in_process_world.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/units.h"

namespace castor::internal {
namespace {

// Up to here the last to arrive moves everything itself: handing out parts
// would take longer.
constexpr Bytes kMoveAtOnce = KiB(32);

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

InProcessWorld::InProcessWorld(int size, Executor* executor, const Clock* clock,
                               int64_t timeout_ns)
    : size_(size),
      executor_(executor),
      clock_(clock),
      timeout_ns_(timeout_ns),
      left_at_(static_cast<size_t>(size), kNever),
      stats_(static_cast<size_t>(size)) {}

void InProcessWorld::Arrive(int64_t position, int rank,
                            const CollectiveCall& call,
                            const RankBuffers& buffers, EventSource done) {
  const auto r = static_cast<size_t>(rank);
  std::shared_ptr<Meeting> meeting;
  std::vector<std::shared_ptr<Meeting>> failed;
  Status ended;
  {
    std::lock_guard lock(mutex_);
    if (ended_.ok()) {
      std::shared_ptr<Meeting>& slot = waiting_[position];
      if (slot == nullptr) {
        slot = std::make_shared<Meeting>();
        slot->position = position;
        slot->call = call;
        slot->first_rank = rank;
        slot->first_ns = timeout_ns_ > 0 ? clock_->NowNs() : 0;
        slot->parts_left = size_;
        slot->buffers.resize(static_cast<size_t>(size_));
        slot->done.resize(static_cast<size_t>(size_));
      }
      meeting = slot;
      CASTOR_CHECK(!meeting->done[r].has_value());
      Status objection = Objection(*meeting, rank, call);
      meeting->buffers[r] = buffers;
      meeting->done[r] = std::move(done);
      ++meeting->arrived;
      if (!objection.ok()) {
        failed = EndLocked(std::move(objection));
        meeting = nullptr;
      } else if (meeting->arrived == size_) {
        waiting_.erase(position);
      } else {
        return;
      }
    }
    ended = ended_;
  }
  if (meeting != nullptr) return Move(meeting);
  for (const auto& each : failed) Complete(*each, ended);
  // Still ours when the world had ended before.
  if (failed.empty()) done.Complete(ended);
}

Status InProcessWorld::Objection(const Meeting& meeting, int rank,
                                 const CollectiveCall& call) const {
  if (!SameCall(call, meeting.call)) {
    return MismatchError(meeting.position, rank, call, meeting.first_rank,
                         meeting.call);
  }
  for (int other = 0; other < size_; ++other) {
    if (left_at_[static_cast<size_t>(other)] <= meeting.position) {
      return LeftError(meeting.position, call, other);
    }
  }
  return OkStatus();
}

void InProcessWorld::Leave(int rank, int64_t position) {
  std::vector<std::shared_ptr<Meeting>> failed;
  Status ended;
  {
    std::lock_guard lock(mutex_);
    left_at_[static_cast<size_t>(rank)] = position;
    const auto first = waiting_.lower_bound(position);
    if (first == waiting_.end()) return;
    failed = EndLocked(LeftError(first->first, first->second->call, rank));
    ended = ended_;
  }
  for (const auto& each : failed) Complete(*each, ended);
}

void InProcessWorld::End(Status reason) {
  CASTOR_CHECK(!reason.ok());
  std::vector<std::shared_ptr<Meeting>> failed;
  Status ended;
  {
    std::lock_guard lock(mutex_);
    failed = EndLocked(std::move(reason));
    ended = ended_;
  }
  for (const auto& each : failed) Complete(*each, ended);
}

Status InProcessWorld::ended() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

void InProcessWorld::CheckTimeout() {
  if (timeout_ns_ <= 0) return;
  std::vector<std::shared_ptr<Meeting>> failed;
  Status ended;
  {
    std::lock_guard lock(mutex_);
    const int64_t now = clock_->NowNs();
    const auto late =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& each) {
          return now - each.second->first_ns >= timeout_ns_;
        });
    if (late == waiting_.end()) return;
    const Meeting& meeting = *late->second;
    std::vector<int> missing;
    for (int rank = 0; rank < size_; ++rank) {
      if (!meeting.done[static_cast<size_t>(rank)]) missing.push_back(rank);
    }
    failed = EndLocked(TimeoutError(meeting.position, meeting.call, missing,
                                    now - meeting.first_ns));
    ended = ended_;
  }
  for (const auto& each : failed) Complete(*each, ended);
}

void InProcessWorld::Forget(int64_t stood_ns) {
  std::lock_guard lock(mutex_);
  const int64_t now = clock_->NowNs();
  for (const auto& [position, meeting] : waiting_) {
    meeting->first_ns = std::min(meeting->first_ns + stood_ns, now);
  }
}

CommunicatorStats InProcessWorld::stats(int rank) const {
  std::lock_guard lock(mutex_);
  return stats_[static_cast<size_t>(rank)];
}

std::vector<std::shared_ptr<InProcessWorld::Meeting>> InProcessWorld::EndLocked(
    Status reason) {
  if (ended_.ok()) ended_ = std::move(reason);
  std::vector<std::shared_ptr<Meeting>> failed;
  for (auto& [position, meeting] : waiting_) failed.push_back(meeting);
  waiting_.clear();
  return failed;
}

void InProcessWorld::Complete(const Meeting& meeting, const Status& status) {
  for (const auto& done : meeting.done) {
    if (done) done->Complete(status);
  }
}

void InProcessWorld::Move(const std::shared_ptr<Meeting>& meeting) {
  if (size_ == 1 || BytesWritten(meeting->call, size_) <= kMoveAtOnce) {
    for (int rank = 0; rank < size_; ++rank) {
      MoveForRank(meeting->call, rank, meeting->buffers);
    }
    return PartsDone(meeting, size_);
  }
  for (int rank = 0; rank < size_; ++rank) {
    executor_->Post([self = shared_from_this(), meeting, rank] {
      MoveForRank(meeting->call, rank, meeting->buffers);
      self->PartsDone(meeting, 1);
    });
  }
}

void InProcessWorld::PartsDone(const std::shared_ptr<Meeting>& meeting,
                               int parts) {
  Status ended;
  {
    std::lock_guard lock(mutex_);
    meeting->parts_left -= parts;
    if (meeting->parts_left > 0) return;
    // Asked once, so that all ranks hear the same.
    ended = ended_;
    for (int rank = 0; ended.ok() && rank < size_; ++rank) {
      const CommunicatorStats more =
          Traffic(meeting->call, rank, meeting->buffers);
      CommunicatorStats& sum = stats_[static_cast<size_t>(rank)];
      sum.operations += more.operations;
      sum.bytes_sent += more.bytes_sent;
      sum.bytes_received += more.bytes_received;
      sum.bytes_copied += more.bytes_copied;
    }
  }
  Complete(*meeting, ended);
}

}  // namespace castor::internal
