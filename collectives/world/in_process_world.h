// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_WORLD_IN_PROCESS_WORLD_H_
#define CASTOR_COLLECTIVES_WORLD_IN_PROCESS_WORLD_H_

// Where the ranks of one process meet. The operations of a rank are numbered in
// the order of its calls; operation p of every rank meets at position p,
// whichever lane brings it and whenever. The last to arrive starts the data
// movement; nobody waits on a thread. Thread-safe. Held by communicators and by
// operations in flight.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "collectives/world/collective_call.h"
#include "collectives/world/data_movement.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"

namespace castor::internal {

class InProcessWorld : public std::enable_shared_from_this<InProcessWorld> {
 public:
  // `executor` and `clock` outlive the world. timeout_ns 0: none.
  InProcessWorld(int size, Executor* executor, const Clock* clock,
                 int64_t timeout_ns);

  int size() const { return size_; }

  // `rank` comes to `position` with `call` and its buffers. `done` is completed
  // when no rank needs them any more, or the world has ended. REQUIRES: once
  // for each rank and position.
  void Arrive(int64_t position, int rank, const CollectiveCall& call,
              const RankBuffers& buffers, EventSource done);
  // `rank` will come to no position from `position` on: its communicator is
  // gone. Ends the world if somebody waits for it or ever comes to.
  void Leave(int rank, int64_t position);

  // Fails what waits and what comes later. Operations whose data is on the move
  // fail too, but not before it has stopped moving. The first reason stays.
  // REQUIRES: !reason.ok().
  void End(Status reason);
  Status ended() const;
  // Ends the world if an operation has waited too long for a rank.
  void CheckTimeout();
  // All ranks stood still for so long, as where their process was stopped: that
  // time counts for no wait.
  void Forget(int64_t stood_ns);

  CommunicatorStats stats(int rank) const;

 private:
  // One position, from the first arrival on.
  struct Meeting {
    int64_t position = 0;
    CollectiveCall call;  // of the first to arrive
    int first_rank = 0;
    int64_t first_ns = 0;
    int arrived = 0;
    int parts_left = 0;                            // guarded by mutex_
    std::vector<RankBuffers> buffers;              // by rank
    std::vector<std::optional<EventSource>> done;  // by rank; set on arrival
  };

  // Why this arrival ends the world; ok if it does not.
  Status Objection(const Meeting& meeting, int rank,
                   const CollectiveCall& call) const;
  // Sets the reason and takes out all who wait, for the caller to fail them
  // once the lock is released.
  std::vector<std::shared_ptr<Meeting>> EndLocked(Status reason);
  static void Complete(const Meeting& meeting, const Status& status);
  void Move(const std::shared_ptr<Meeting>& meeting);
  void PartsDone(const std::shared_ptr<Meeting>& meeting, int parts);

  const int size_;
  Executor* const executor_;
  const Clock* const clock_;
  const int64_t timeout_ns_;

  mutable std::mutex mutex_;
  Status ended_;                                         // guarded by mutex_
  std::map<int64_t, std::shared_ptr<Meeting>> waiting_;  // guarded by mutex_
  std::vector<int64_t> left_at_;          // by rank; guarded by mutex_
  std::vector<CommunicatorStats> stats_;  // by rank; guarded by mutex_
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_WORLD_IN_PROCESS_WORLD_H_
