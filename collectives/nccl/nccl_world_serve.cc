// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The thread that serves a world while it lasts: from what lanes come to, by
// what rank 0 says may go, to what has ended on the device.

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "collectives/nccl/nccl_world.h"

namespace castor::internal {
namespace {

// Between two looks at work on the device; a question costs a microsecond.
constexpr int64_t kBusyLookNs = 20'000;
constexpr int64_t kStartLookNs = 1'000'000;
// Between two questions to NCCL for errors behind its calls.
constexpr int64_t kErrorLookNs = 10'000'000;

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

}  // namespace castor::internal
