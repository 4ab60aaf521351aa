// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_EVENT_WATCHER_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_EVENT_WATCHER_H_

// The completion thread of a CUDA device: it asks for the events on which
// somebody wants to be called back, and calls; and it queues on streams what
// had to wait for the host. It asks rather than let the driver call
// (cudaLaunchHostFunc), because a stream stands still until such a call
// returns, nothing in it may use CUDA, and none comes from a device that
// failed. Nothing is asked while nobody waits. Of each lane only the event that
// comes first is asked for: a lane's events are done in their order.
// Thread-safe. Part of the CUDA lanes (cuda_lane.h).

#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "offload/lanes/executor.h"

namespace castor {

class CudaEventState;
class CudaLaneControl;

class CudaEventWatcher {
 public:
  enum class Thread {
    kOwn,
    kNone,  // tests call Poll
  };

  explicit CudaEventWatcher(Thread thread);
  // Serves what is watched until nothing is, then joins.
  ~CudaEventWatcher();
  CudaEventWatcher(const CudaEventWatcher&) = delete;
  CudaEventWatcher& operator=(const CudaEventWatcher&) = delete;

  // Serves `event` once it is done.
  void Watch(std::shared_ptr<CudaEventState> event);

  // Runs `task`, which does not block, soon.
  void Post(Executor::Task task);

  // Runs what was posted and asks once for the first event of each lane, and
  // for those behind it as far as they are done. Returns how many tasks and
  // events are left. One thread at a time.
  size_t Poll();

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<CudaEventState>> added_;  // guarded by mutex_
  std::vector<Executor::Task> tasks_;                   // guarded by mutex_
  bool stopping_ = false;                               // guarded by mutex_
  // Touched by Poll only.
  struct BySequence {
    bool operator()(const std::shared_ptr<CudaEventState>& a,
                    const std::shared_ptr<CudaEventState>& b) const;
  };
  using OfLane = std::multiset<std::shared_ptr<CudaEventState>, BySequence>;
  std::map<const CudaLaneControl*, OfLane> watched_;
  std::thread thread_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_EVENT_WATCHER_H_
