// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What any thread asks of a world: it is left for the thread that serves
// (nccl_world_serve.cc), which is then woken.

#include "collectives/nccl/nccl_world.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "chunk/base/check.h"
#include "offload/lanes/start_thread.h"

namespace castor::internal {
namespace {

constexpr std::chrono::milliseconds kAskEvery{50};

}  // namespace

Result<std::shared_ptr<NcclWorld>> NcclWorld::Make(
    NcclWorldOptions options, ControlPlane plane,
    std::unique_ptr<NcclStreams> streams) {
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return Unavailable(fmt::format("eventfd: {}", std::strerror(errno)));
  }
  return std::shared_ptr<NcclWorld>(
      new NcclWorld(std::move(options), std::move(plane), std::move(streams),
                    std::move(wake)));
}

NcclWorld::NcclWorld(NcclWorldOptions options, ControlPlane plane,
                     std::unique_ptr<NcclStreams> streams, UniqueFd wake)
    : options_(std::move(options)),
      plane_(std::move(plane)),
      streams_(std::move(streams)),
      wake_(std::move(wake)) {}

Status NcclWorld::Start(const std::function<bool()>& give_up) {
  start_by_ns_ = clock_.NowNs() + options_.timeouts.start_ns;
  CASTOR_RETURN_IF_ERROR(OrThreadLimit([this]() -> Status {
    thread_ = StartThread([this] { Serve(); });
    return OkStatus();
  }));
  Status ended;
  {
    std::unique_lock lock(mutex_);
    const auto over = [this] { return started_ || !ended_.ok(); };
    bool given_up = false;
    while (!changed_.wait_for(lock, kAskEvery, over)) {
      if (given_up || !give_up) continue;
      lock.unlock();
      given_up = give_up();
      if (given_up) {
        End(Aborted(fmt::format(
            "rank {} was told to wait for the other ranks no longer",
            options_.rank)));
      }
      lock.lock();
    }
    // What ended a world that had started is for its operations to say.
    if (!started_) ended = ended_;
  }
  if (!ended.ok()) Stop(0);
  return ended;
}

void NcclWorld::Stop(int64_t position) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    leave_at_ = position;
  }
  Wake();
  thread_.join();
}

void NcclWorld::Wake() {
  const uint64_t one = 1;
  // It fails only where the thread has been woken 2^64 times already.
  [[maybe_unused]] const ssize_t put = write(wake_.get(), &one, sizeof(one));
}

void NcclWorld::Add(const std::shared_ptr<Operation>& operation) {
  Status ended;
  {
    std::lock_guard lock(mutex_);
    ended = ended_;
    if (ended.ok()) {
      open_[operation->position] = operation;
      return;
    }
    operation->ended = true;
  }
  operation->done.Complete(ended);
}

void NcclWorld::Arrive(const std::shared_ptr<Operation>& operation,
                       const Status& lane_status) {
  {
    std::lock_guard lock(mutex_);
    if (operation->ended) return;
    arrivals_.push_back({operation, lane_status});
  }
  Wake();
}

void NcclWorld::End(Status reason) {
  CASTOR_CHECK(!reason.ok());
  {
    std::lock_guard lock(mutex_);
    ends_.push_back(std::move(reason));
  }
  Wake();
}

Status NcclWorld::ended() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

CommunicatorStats NcclWorld::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void NcclWorld::RunThere(std::function<void()> task) {
  const EventSource ran;
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back([task = std::move(task), ran] {
      task();
      ran.Complete();
    });
  }
  Wake();
  ran.event().Wait().IgnoreError();  // it cannot fail
}

void NcclWorld::Register(void* data, Bytes size) {
  RunThere([&] { streams_->Register(data, size); });
}

void NcclWorld::Unregister(void* data) {
  RunThere([&] { streams_->Unregister(data); });
}

}  // namespace castor::internal
