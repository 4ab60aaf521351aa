// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/in_process_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "collectives/world/call_communicator.h"
#include "collectives/world/collective_call.h"
#include "collectives/world/data_movement.h"
#include "collectives/world/in_process_world.h"
#include "offload/lanes/event.h"
#include "offload/lanes/start_thread.h"

namespace castor {
namespace {

using internal::CollectiveCall;
using internal::CollectiveKind;
using internal::InProcessWorld;
using internal::RankBuffers;

// A thread that wakes so much too late did not run: its process was stopped by
// Ctrl-Z, or the machine slept.
constexpr int64_t kSlackNs = 500'000'000;

// Looks now and then whether an operation waits too long. It polls, because
// the clock is injected and what it shows is not this thread's time, and
// because waking it for every operation would cost more.
class Watchdog {
 public:
  Watchdog(std::shared_ptr<InProcessWorld> world, int64_t timeout_ns)
      : world_(std::move(world)),
        period_(std::clamp<int64_t>(timeout_ns / 8, 1'000'000, 250'000'000)),
        thread_(StartThread([this] { Watch(); })) {}
  ~Watchdog() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Watch() {
    std::unique_lock lock(mutex_);
    int64_t looked_ns = MachineClock()->NowNs();
    while (!changed_.wait_for(lock, period_, [this] { return stopping_; })) {
      lock.unlock();
      const int64_t now = MachineClock()->NowNs();
      const int64_t gap = now - std::exchange(looked_ns, now);
      // Ranks are threads of this process, which did not run either.
      if (gap > period_.count() + kSlackNs) world_->Forget(gap);
      world_->CheckTimeout();
      lock.lock();
    }
  }

  const std::shared_ptr<InProcessWorld> world_;
  const std::chrono::nanoseconds period_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last: it uses the rest
};

// A call on its way to the world, in the queue of a lane. A lane that has
// failed drops it without starting it: then the others must not wait for it.
class QueuedCall {
 public:
  QueuedCall(std::shared_ptr<InProcessWorld> world, int64_t position, int rank,
             const CollectiveCall& call, const RankBuffers& buffers)
      : world_(std::move(world)),
        position_(position),
        rank_(rank),
        call_(call),
        buffers_(buffers) {}
  ~QueuedCall() {
    if (started_) return;
    world_->End(internal::SkippedError(position_, call_, rank_));
  }
  QueuedCall(const QueuedCall&) = delete;
  QueuedCall& operator=(const QueuedCall&) = delete;

  void Start(EventSource done) {
    started_ = true;
    world_->Arrive(position_, rank_, call_, buffers_, std::move(done));
  }

 private:
  const std::shared_ptr<InProcessWorld> world_;
  const int64_t position_;
  const int rank_;
  const CollectiveCall call_;
  const RankBuffers buffers_;
  bool started_ = false;
};

class InProcessCommunicator final : public internal::CallCommunicator {
 public:
  InProcessCommunicator(std::shared_ptr<InProcessWorld> world,
                        std::shared_ptr<Watchdog> watchdog, int rank)
      : world_(std::move(world)), watchdog_(std::move(watchdog)), rank_(rank) {}
  ~InProcessCommunicator() override { world_->Leave(rank_, next_position_); }

  int rank() const override { return rank_; }
  int world() const override { return world_->size(); }

  void Abort(Status reason) override { world_->End(std::move(reason)); }
  Status Health() const override { return world_->ended(); }
  Bytes buffer_bytes() const override { return Bytes(0); }
  CommunicatorStats stats() const override { return world_->stats(rank_); }

 private:
  void Queue(Lane& lane, const CollectiveCall& call,
             const RankBuffers& buffers) override {
    auto queued = std::make_shared<QueuedCall>(world_, next_position_++, rank_,
                                               call, buffers);
    lane.RunAsync([queued = std::move(queued)](EventSource done) {
      queued->Start(std::move(done));
    });
  }

  const std::shared_ptr<InProcessWorld> world_;
  const std::shared_ptr<Watchdog> watchdog_;  // null when nothing can be late
  const int rank_;
  int64_t next_position_ = 0;  // of this rank's next call
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeInProcessWorld(
    const InProcessOptions& options) {
  CASTOR_CHECK_GE(options.world, 1);
  CASTOR_CHECK(options.executor != nullptr);
  CASTOR_CHECK_GE(options.timeout_ns, 0);
  auto world = std::make_shared<InProcessWorld>(
      options.world, options.executor,
      options.clock != nullptr ? options.clock : MachineClock(),
      options.timeout_ns);
  std::shared_ptr<Watchdog> watchdog;
  if (options.world > 1 && options.timeout_ns > 0) {
    watchdog = std::make_shared<Watchdog>(world, options.timeout_ns);
  }
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < options.world; ++rank) {
    ranks.push_back(
        std::make_unique<InProcessCommunicator>(world, watchdog, rank));
  }
  return ranks;
}

}  // namespace castor
