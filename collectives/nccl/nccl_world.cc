// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/nccl_world.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"

namespace castor::internal {
namespace {

// Between two looks at work on the device; a question costs a microsecond.
constexpr int64_t kBusyLookNs = 20'000;
constexpr int64_t kStartLookNs = 1'000'000;
// Between two questions to NCCL for errors behind its calls.
constexpr int64_t kErrorLookNs = 10'000'000;
// How long buffers are kept after an end for ranks that say nothing, and how
// long leaving waits for the others.
constexpr int64_t kQuietNs = 10'000'000'000;

// Of the world's own start.
constexpr int64_t kStartPosition = -1;

Bytes HostBytes(const CollectiveCall& call) {
  if (call.kind == CollectiveKind::kBroadcast) return Bytes(call.count);
  if (call.kind == CollectiveKind::kAllReduce) {
    return BytesOf(Elements(call.count), call.dtype);
  }
  return Bytes(0);
}

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

Status NcclWorld::Start() {
  start_by_ns_ = clock_.NowNs() + options_.timeouts.start_ns;
  thread_ = std::thread([this] { Serve(); });
  Status ended;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return started_ || !ended_.ok(); });
    ended = ended_;
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

void NcclWorld::Serve() {
  options_.on_thread();
  do {
    WaitForWork();
    TakeInbox();
    std::vector<ControlMessage> heard;
    plane_.Serve(&heard);
    for (const ControlMessage& message : heard) Hear(message);
    GoOnStarting();
    GoOnIssuing();
    SeeThrough();
    CheckQuiet();
  } while (!MayLeave());
  Leave();
}

void NcclWorld::WaitForWork() {
  std::vector<pollfd> entries = {
      {.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  plane_.AppendTo(&entries);
  int64_t wait_ns =
      options_.timeouts.operation_ns > 0
          ? std::clamp<int64_t>(options_.timeouts.operation_ns / 8, 1'000'000,
                                250'000'000)
          : 250'000'000;
  if (!said_started_ || over_) wait_ns = kStartLookNs;
  if (!to_issue_.empty() || !on_device_.empty()) wait_ns = kBusyLookNs;
  if (plane_.has_news()) wait_ns = 0;
  const timespec wait = {.tv_sec = 0, .tv_nsec = wait_ns};
  ppoll(entries.data(), entries.size(), &wait, nullptr);
  uint64_t woken = 0;
  // Nothing to read: something else ended the wait.
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &woken, sizeof(woken));
}

void NcclWorld::TakeInbox() {
  std::vector<Arrival> arrivals;
  std::vector<Status> ends;
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex_);
    arrivals.swap(arrivals_);
    ends.swap(ends_);
    tasks.swap(tasks_);
  }
  for (const std::function<void()>& task : tasks) task();
  for (Status& reason : ends) {
    plane_.Say({.kind = ControlKind::kEnd, .status = std::move(reason)});
  }
  for (const Arrival& arrival : arrivals) {
    Operation& operation = *arrival.operation;
    if (operation.ended) continue;
    const CollectiveCall& call = operation.work.call;
    if (!arrival.lane_status.ok()) {
      plane_.Say(
          {.kind = ControlKind::kEnd,
           .status = SkippedError(operation.position, call, options_.rank)});
      continue;
    }
    ControlMessage ready = {.kind = ControlKind::kReady,
                            .position = operation.position,
                            .call = call};
    const bool brings =
        call.kind == CollectiveKind::kAllReduce ||
        (call.kind == CollectiveKind::kBroadcast && call.root == options_.rank);
    if (brings) {
      const auto* const data =
          static_cast<const std::byte*>(operation.work.buffers.in);
      ready.payload.assign(data, data + HostBytes(call).count());
    }
    plane_.Say(std::move(ready));
  }
}

void NcclWorld::Hear(const ControlMessage& message) {
  switch (message.kind) {
    case ControlKind::kGo:
      return Go(message);
    case ControlKind::kEnd:
      return EndNow(message.status);
    case ControlKind::kQuiet:
      all_quiet_ = true;
      return;
    default:
      return SayEnd(Internal("rank 0 says what only other ranks say"));
  }
}

void NcclWorld::Go(const ControlMessage& message) {
  std::shared_ptr<Operation> operation;
  {
    std::lock_guard lock(mutex_);
    if (message.position == kStartPosition) {
      started_ = true;
      changed_.notify_all();
      return;
    }
    const auto found = open_.find(message.position);
    CASTOR_CHECK(found != open_.end());
    operation = found->second;
  }
  operation->begun_ns = clock_.NowNs();
  const CollectiveCall& call = operation->work.call;
  if ((call.kind == CollectiveKind::kAllGather ||
       call.kind == CollectiveKind::kReduceScatter) &&
      call.count > 0) {
    to_issue_.push_back(std::move(operation));
    return;
  }
  if (!message.payload.empty()) {
    CASTOR_CHECK_EQ(std::ssize(message.payload), HostBytes(call).count());
    std::memcpy(operation->work.buffers.out, message.payload.data(),
                message.payload.size());
  }
  Complete(*operation, OkStatus());
}

void NcclWorld::SayEnd(Status reason) {
  if (over_ || failed_) return;
  failed_ = true;
  plane_.Say({.kind = ControlKind::kEnd, .status = std::move(reason)});
}

void NcclWorld::GoOnStarting() {
  if (said_started_ || over_) return;
  if (!options_.refused.ok()) {
    return SayEnd(
        options_.refused.WithContext(fmt::format("rank {}", options_.rank)));
  }
  if (failed_) return;
  Result<bool> made = streams_->Start(options_.ids);
  if (!made.ok()) return SayEnd(made.status());
  if (*made) {
    said_started_ = true;
    plane_.Say({.kind = ControlKind::kReady,
                .position = kStartPosition,
                .call = {.kind = CollectiveKind::kBarrier,
                         .tag = {.chunk = ChunkId(),
                                 .moment = -1,
                                 .purpose = "NCCL's start"}}});
  } else if (options_.timeouts.start_ns > 0 && clock_.NowNs() > start_by_ns_) {
    SayEnd(Aborted(fmt::format(
        "rank {} waits in vain for NCCL to make its communicators: a rank "
        "hangs, or NCCL finds no way between hosts (NCCL_SOCKET_IFNAME, "
        "NCCL_DEBUG=INFO)",
        options_.rank)));
  }
}

void NcclWorld::GoOnIssuing() {
  while (!to_issue_.empty() && !over_ && !failed_) {
    const std::shared_ptr<Operation>& operation = to_issue_.front();
    Result<bool> issued = streams_->Issue(&operation->work);
    if (!issued.ok()) {
      return SayEnd(issued.status().WithContext(
          fmt::format("operation {}, {}", operation->position,
                      Describe(operation->work.call))));
    }
    if (!*issued) return;
    on_device_.push_back(operation);
    to_issue_.pop_front();
  }
}

void NcclWorld::SeeThrough() {
  if (over_ || failed_ || (on_device_.empty() && to_issue_.empty())) return;
  const int64_t now_ns = clock_.NowNs();
  const bool some_done = std::ranges::any_of(
      on_device_, [](const auto& each) { return each->work.done.done(); });
  const Operation& oldest =
      *(on_device_.empty() ? to_issue_.front() : on_device_.front());
  if (some_done || now_ns - looked_ns_ >= kErrorLookNs) {
    looked_ns_ = now_ns;
    if (const Status error = streams_->AsyncError(); !error.ok()) {
      return SayEnd(error.WithContext(fmt::format(
          "operation {}, {}", oldest.position, Describe(oldest.work.call))));
    }
  }
  const int64_t limit_ns = options_.timeouts.operation_ns;
  if (limit_ns > 0 && now_ns - oldest.begun_ns >= limit_ns && !some_done) {
    return SayEnd(Aborted(fmt::format(
        "operation {}, {}, does not end on the device of rank {}, {} s after "
        "all ranks had come to it: another rank's device or the network "
        "between hangs, or the timeout is short for so much",
        oldest.position, Describe(oldest.work.call), options_.rank,
        static_cast<double>(now_ns - oldest.begun_ns) * 1e-9)));
  }
  for (auto it = on_device_.begin(); it != on_device_.end();) {
    const Event& done = (*it)->work.done;
    if (!done.done()) {
      ++it;
      continue;
    }
    if (const Status status = done.status(); !status.ok()) {
      return SayEnd(status.WithContext(fmt::format(
          "rank {}, {}", options_.rank, Describe((*it)->work.call))));
    }
    Complete(**it, OkStatus());
    it = on_device_.erase(it);
  }
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

void NcclWorld::Complete(Operation& operation, const Status& status) {
  {
    std::lock_guard lock(mutex_);
    operation.ended = true;
    if (status.ok()) {
      std::vector<RankBuffers> buffers(static_cast<size_t>(options_.world));
      buffers[static_cast<size_t>(options_.rank)] = operation.work.buffers;
      const CommunicatorStats more =
          Traffic(operation.work.call, options_.rank, buffers);
      stats_.operations += more.operations;
      stats_.bytes_sent += more.bytes_sent;
      stats_.bytes_received += more.bytes_received;
      stats_.bytes_copied += more.bytes_copied;
    }
  }
  operation.done.Complete(status);
  std::lock_guard lock(mutex_);
  open_.erase(operation.position);
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
