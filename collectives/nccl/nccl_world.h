// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_NCCL_WORLD_H_
#define CASTOR_COLLECTIVES_NCCL_NCCL_WORLD_H_

// One rank's part of a world, and the thread that serves it: it hears from
// lanes and from rank 0, starts what may go, and sees it through. All calls of
// NCCL are its own, because a communicator of NCCL is for one thread. Held by
// the communicator and by lanes on their way to an operation. Thread-safe.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/nccl/control/control_plane.h"
#include "collectives/nccl/nccl_streams.h"
#include "collectives/world/collective_call.h"
#include "collectives/world/data_movement.h"
#include "offload/lanes/event.h"
#include "offload/nvme/queue/unique_fd.h"

namespace castor::internal {

struct NcclWorldOptions {
  int rank = 0;
  int world = 1;
  ControlTimeouts timeouts;
  NcclIds ids;
  // Makes the device current on the thread that serves.
  std::function<void()> on_thread;
  // Why this rank cannot take part, where it cannot: all are told.
  Status refused;
};

class NcclWorld : public std::enable_shared_from_this<NcclWorld> {
 public:
  // Unavailable where the system has no descriptor to wake the thread by.
  // `streams` are null where options.refused says why.
  static Result<std::shared_ptr<NcclWorld>> Make(
      NcclWorldOptions options, ControlPlane plane,
      std::unique_ptr<NcclStreams> streams);

  // Starts the thread; blocks until all ranks have started, or returns why not.
  // `give_up`, if there is one, is asked meanwhile and may end the world.
  Status Start(const std::function<bool()>& give_up = nullptr);
  // Waits for what was called, leaves the world at `position`, joins.
  void Stop(int64_t position);

  // The operation at `position` of this rank; `done` completes when its lane
  // may go on.
  struct Operation {
    int64_t position = 0;
    NcclWork work;
    EventSource done;
    int64_t begun_ns = 0;  // when all ranks had come
    bool ended = false;
  };
  void Add(const std::shared_ptr<Operation>& operation);
  // Its lane has come to it, or has failed before.
  void Arrive(const std::shared_ptr<Operation>& operation,
              const Status& lane_status);

  void End(Status reason);
  Status ended() const;
  CommunicatorStats stats() const;
  void Register(void* data, Bytes size);
  void Unregister(void* data);

 private:
  NcclWorld(NcclWorldOptions options, ControlPlane plane,
            std::unique_ptr<NcclStreams> streams, UniqueFd wake);

  struct Arrival {
    std::shared_ptr<Operation> operation;
    Status lane_status;
  };

  // Of any thread.
  void Wake();
  // Runs `task` on the thread that serves, and waits for it.
  void RunThere(std::function<void()> task);

  // Of the thread that serves.
  void Serve();
  void WaitForWork();
  void TakeInbox();
  void Hear(const ControlMessage& message);
  void Go(const ControlMessage& message);
  void GoOnStarting();
  void GoOnIssuing();
  void SeeThrough();
  void EndNow(const Status& reason);
  // After an end: tells of a quiet device, and lets buffers go.
  void CheckQuiet();
  void Complete(Operation& operation, const Status& status);
  void SayEnd(Status reason);
  // Whether nothing is left to do before the thread leaves.
  bool MayLeave();
  void Leave();

  const NcclWorldOptions options_;
  const SteadyClock clock_;

  // Of the thread that serves.
  ControlPlane plane_;
  std::unique_ptr<NcclStreams> streams_;
  int64_t start_by_ns_ = 0;
  bool said_started_ = false;
  bool over_ = false;    // the world has ended
  bool failed_ = false;  // this rank has said why it should
  std::deque<std::shared_ptr<Operation>> to_issue_;  // in the world's order
  std::deque<std::shared_ptr<Operation>> on_device_;
  int64_t looked_ns_ = 0;  // for errors behind the calls
  bool said_quiet_ = false;
  bool all_quiet_ = false;
  int64_t quiet_by_ns_ = 0;

  const UniqueFd wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::map<int64_t, std::shared_ptr<Operation>> open_;  // called, not ended
  std::vector<Arrival> arrivals_;
  std::vector<Status> ends_;  // reasons of this rank, to be said
  std::vector<std::function<void()>> tasks_;
  bool started_ = false;
  bool stopping_ = false;
  int64_t leave_at_ = 0;
  Status ended_;
  CommunicatorStats stats_;

  std::thread thread_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_NCCL_NCCL_WORLD_H_
