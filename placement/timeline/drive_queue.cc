// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/timeline/drive_queue.h"

#include <algorithm>
#include <utility>

namespace castor::internal {
namespace {

// As kNvmeStripe and IoQueueOptions of offload/nvme/.
constexpr Bytes kStripe = MiB(1);
constexpr int kDepth = 32;
constexpr int kPatience = 16;

}  // namespace

struct DriveQueue::Transfer {
  Traffic traffic = Traffic::kDriveRead;
  Bytes offset;
  Bytes size;
  DrivePriority priority = DrivePriority::kDemand;
  bool started = false;
  bool cancelled = false;  // before it started
  int64_t parts_left = 0;
  SimSource over;
};

SimEvent DriveQueue::Move(Traffic traffic, Bytes offset, Bytes size,
                          const SimEvent& after, DrivePriority priority,
                          Ticket* ticket) {
  const auto transfer = std::make_shared<Transfer>();
  transfer->traffic = traffic;
  transfer->offset = offset;
  transfer->size = size;
  transfer->priority = priority;
  if (ticket != nullptr) *ticket = transfer;
  after.OnDone([this, transfer] { Start(transfer); });
  return transfer->over.event();
}

void DriveQueue::Start(const Ticket& transfer) {
  if (transfer->cancelled) return transfer->over.Complete();
  transfer->started = true;
  std::vector<Bytes> pieces;
  const Bytes end = transfer->offset + transfer->size;
  for (Bytes at = transfer->offset; at < end;) {
    const Bytes next = std::min(RoundDown(at, kStripe) + kStripe, end);
    pieces.push_back(next - at);
    at = next;
  }
  const bool read = transfer->traffic == Traffic::kDriveRead;
  const auto count = static_cast<int64_t>(pieces.size());
  // A piece is read and then verified; it is written while its checksum is
  // made.
  transfer->parts_left = count * (read ? 1 : 2);
  for (const Bytes size : pieces) Submit({transfer, size});
  for (int64_t i = 0; i < count && !read; ++i) {
    loop_->Post([this, transfer] { EndPart(transfer); });
  }
}

void DriveQueue::Submit(Piece piece) {
  const auto p = static_cast<size_t>(piece.transfer->priority);
  if (waiting_[p].empty()) passed_over_[p] = 0;
  waiting_[p].push_back(std::move(piece));
  SendOut();
}

void DriveQueue::SendOut() {
  while (in_flight_ < kDepth) {
    const size_t p = NextPriority();
    if (p == kDrivePriorities) return;
    passed_over_[p] = 0;
    const Piece piece = std::move(waiting_[p].front());
    waiting_[p].pop_front();
    ++in_flight_;
    wires_->Begin(piece.transfer->traffic, piece.size,
                  [this, transfer = piece.transfer] {
                    loop_->Post([this, transfer] {
                      if (transfer->traffic == Traffic::kDriveRead) {
                        loop_->Post([this, transfer] { EndPart(transfer); });
                      } else {
                        EndPart(transfer);
                      }
                      --in_flight_;
                      SendOut();
                    });
                  });
  }
}

size_t DriveQueue::NextPriority() {
  // The most urgent of those that lost patience, else the most urgent.
  size_t next = kDrivePriorities;
  for (size_t p = 0; p < kDrivePriorities; ++p) {
    if (waiting_[p].empty()) continue;
    if (passed_over_[p] >= kPatience) {
      next = p;
      break;
    }
    next = std::min(next, p);
  }
  for (size_t p = next + 1; p < kDrivePriorities; ++p) {
    if (!waiting_[p].empty()) ++passed_over_[p];
  }
  return next;
}

void DriveQueue::EndPart(const Ticket& transfer) {
  if (--transfer->parts_left == 0) transfer->over.Complete();
}

void DriveQueue::Raise(const Ticket& ticket) {
  if (ticket == nullptr || ticket->priority == DrivePriority::kDemand) return;
  std::deque<Piece>& from = waiting_[static_cast<size_t>(ticket->priority)];
  ticket->priority = DrivePriority::kDemand;
  std::deque<Piece>& to = waiting_[0];
  for (size_t i = 0; i < from.size();) {
    if (from[i].transfer != ticket) {
      ++i;
      continue;
    }
    if (to.empty()) passed_over_[0] = 0;
    to.push_back(std::move(from[i]));
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

bool DriveQueue::Cancel(const Ticket& ticket) {
  if (ticket == nullptr || ticket->cancelled) return false;
  if (!ticket->started) return ticket->cancelled = true;
  std::deque<Piece>& waiting = waiting_[static_cast<size_t>(ticket->priority)];
  const auto taken = static_cast<int64_t>(std::erase_if(
      waiting, [&](const Piece& piece) { return piece.transfer == ticket; }));
  for (int64_t i = 0; i < taken; ++i) EndPart(ticket);
  return taken > 0;
}

}  // namespace castor::internal
