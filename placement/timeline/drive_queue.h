// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TIMELINE_DRIVE_QUEUE_H_
#define CASTOR_PLACEMENT_TIMELINE_DRIVE_QUEUE_H_

// Transfers of whole extents to and from the drive of a simulation. Each waits
// for what comes before it, and is cut into pieces of a stripe. The pieces go
// out by priority, as many at a time as a queue is deep. The rules are those of
// offload/nvme/store/nvme_store.h and offload/nvme/queue/simulated_io_queue.h.
// Owner thread only. Part of the wires (wires.h).

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "chunk/base/units.h"
#include "placement/timeline/event_loop.h"
#include "placement/timeline/wires.h"

namespace castor::internal {

enum class DrivePriority : uint8_t {
  kDemand,
  kPrefetch,
  kWriteBack,
  kOptimizer
};
inline constexpr int kDrivePriorities = 4;

class DriveQueue {
 public:
  // Both outlive the queue, and the queue all that was asked of it.
  DriveQueue(EventLoop* loop, Wires* wires) : loop_(loop), wires_(wires) {}
  DriveQueue(const DriveQueue&) = delete;
  DriveQueue& operator=(const DriveQueue&) = delete;

  struct Transfer;  // names one, for Raise
  using Ticket = std::shared_ptr<Transfer>;

  // Moves [offset, offset + size) of the drive once `after` is done. The event
  // says when it is over. REQUIRES: size > 0; the traffic is one of a drive.
  SimEvent Move(Traffic traffic, Bytes offset, Bytes size,
                const SimEvent& after, DrivePriority priority,
                Ticket* ticket = nullptr);
  // Somebody waits for it now.
  void Raise(const Ticket& ticket);
  // Takes back what of it has not gone out; its end comes with that of the
  // rest. True: something was taken back.
  bool Cancel(const Ticket& ticket);

 private:
  struct Piece {
    Ticket transfer;
    Bytes size;
  };

  void Start(const Ticket& transfer);
  void Submit(Piece piece);
  void SendOut();
  // The priority whose turn it is; kDrivePriorities where nothing waits.
  size_t NextPriority();
  void EndPart(const Ticket& transfer);

  EventLoop* const loop_;
  Wires* const wires_;
  std::array<std::deque<Piece>, kDrivePriorities> waiting_;
  std::array<int, kDrivePriorities> passed_over_{};
  int in_flight_ = 0;
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_TIMELINE_DRIVE_QUEUE_H_
