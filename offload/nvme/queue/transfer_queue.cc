// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/queue/transfer_queue.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

// An interrupted or momentarily refused call is repeated; one that is refused
// this often without a byte moved is a failure, not a hang.
constexpr int kMaxTriesWithoutProgress = 10000;

// What is past the end of a truncated file reads as no bytes, or with O_DIRECT
// as an invalid argument: say what it means.
std::string FileEnd(const TransferQueue::Transfer& transfer) {
  struct stat facts;
  if (::fstat(transfer.fd, &facts) != 0 || !S_ISREG(facts.st_mode)) return "";
  if ((transfer.offset + transfer.size).count() <= facts.st_size) return "";
  return fmt::format(
      ". The file ends at {} B: another program truncated it, or less was "
      "written than is read",
      facts.st_size);
}

size_t Index(IoPriority priority) { return static_cast<size_t>(priority); }

Status Failure(const TransferQueue::Transfer& transfer, int64_t result) {
  const bool read = transfer.direction == IoDirection::kRead;
  std::string why =
      result < 0
          ? fmt::format(
                "{} (errno {})",
                std::generic_category().message(static_cast<int>(-result)),
                -result)
          : fmt::format("the system {} no byte", read ? "read" : "wrote");
  if (read && (result == 0 || result == -EINVAL)) why += FileEnd(transfer);
  return IoError(fmt::format(
      "{} {} B at offset {} failed: {}", read ? "reading" : "writing",
      transfer.size.count(), transfer.offset.count(), why));
}

}  // namespace

// In its deque until its last transfer has gone out, then owned by the
// transfers in flight: the one that ends last destroys it.
struct TransferQueue::Request {
  IoRequest io;
  uint64_t id = 0;
  Bytes issued;
  int64_t in_flight = 0;
  Status status;  // the first failure
};

TransferQueue::TransferQueue(Bytes piece, int patience)
    : piece_(piece), patience_(patience) {
  CASTOR_CHECK_GE(piece, KiB(4));
  CASTOR_CHECK_LE(piece, MiB(512));
  CASTOR_CHECK_EQ(piece % KiB(4), Bytes(0));
  CASTOR_CHECK_GE(patience, 1);
}

TransferQueue::~TransferQueue() { CASTOR_CHECK(drained()); }

IoTicket TransferQueue::Add(IoRequest request) {
  CASTOR_CHECK(request.done != nullptr);
  CASTOR_CHECK_GE(request.size, Bytes(0));
  CASTOR_CHECK_GE(request.offset, Bytes(0));
  auto added = std::make_unique<Request>();
  added->io = std::move(request);
  const size_t priority = Index(added->io.priority);
  std::lock_guard lock(mutex_);
  CASTOR_CHECK(!closed_);
  added->id = ++last_id_;
  const IoTicket ticket{added->id};
  if (waiting_[priority].empty()) passed_over_[priority] = 0;
  waiting_[priority].push_back(std::move(added));
  ++requests_;
  // All, because one request may keep every waiting thread busy; under the
  // lock, because once it is released the request may end and all go away.
  more_.notify_all();
  return ticket;
}

TransferQueue::Request* TransferQueue::Find(IoTicket ticket) const {
  for (const Waiting& waiting : waiting_) {
    for (const auto& request : waiting) {
      if (request->id == ticket.id) return request.get();
    }
  }
  return nullptr;
}

std::unique_ptr<TransferQueue::Request> TransferQueue::TakeOut(
    const Request& request) {
  Waiting& waiting = waiting_[Index(request.io.priority)];
  const auto place =
      std::find_if(waiting.begin(), waiting.end(),
                   [&](const auto& each) { return each.get() == &request; });
  CASTOR_CHECK(place != waiting.end());
  std::unique_ptr<Request> taken = std::move(*place);
  waiting.erase(place);
  return taken;
}

bool TransferQueue::Raise(IoTicket ticket, IoPriority priority) {
  std::lock_guard lock(mutex_);
  Request* request = Find(ticket);
  if (request == nullptr || request->io.priority <= priority) return false;
  std::unique_ptr<Request> raised = TakeOut(*request);
  raised->io.priority = priority;
  if (waiting_[Index(priority)].empty()) passed_over_[Index(priority)] = 0;
  waiting_[Index(priority)].push_back(std::move(raised));
  return true;
}

bool TransferQueue::Cancel(IoTicket ticket) {
  std::unique_ptr<Request> over;
  {
    std::lock_guard lock(mutex_);
    Request* request = Find(ticket);
    if (request == nullptr) return false;
    over = TakeOut(*request);
    over->issued = over->io.size;
    over->status = Aborted(fmt::format(
        "the {} of {} B at offset {} was cancelled before all of it had gone "
        "out",
        over->io.direction == IoDirection::kRead ? "read" : "write",
        over->io.size.count(), over->io.offset.count()));
    if (over->in_flight > 0) {
      over.release();  // its transfers in flight own it
      return true;
    }
  }
  End(std::move(over));
  return true;
}

void TransferQueue::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  more_.notify_all();
}

bool TransferQueue::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

bool TransferQueue::drained() const {
  std::lock_guard lock(mutex_);
  return closed_ && requests_ == 0;
}

bool TransferQueue::TryNext(Transfer* transfer) {
  std::lock_guard lock(mutex_);
  return NextLocked(transfer);
}

bool TransferQueue::WaitNext(Transfer* transfer) {
  std::unique_lock lock(mutex_);
  while (!NextLocked(transfer)) {
    if (closed_) return false;
    more_.wait(lock);
  }
  return true;
}

size_t TransferQueue::NextPriority() {
  // The most urgent of those that lost patience, else the most urgent.
  size_t next = waiting_.size();
  for (size_t i = 0; i < waiting_.size(); ++i) {
    if (waiting_[i].empty()) continue;
    if (passed_over_[i] >= patience_) {
      next = i;
      break;
    }
    next = std::min(next, i);
  }
  for (size_t i = next + 1; i < waiting_.size(); ++i) {
    if (!waiting_[i].empty()) ++passed_over_[i];
  }
  return next;
}

bool TransferQueue::NextLocked(Transfer* transfer) {
  const size_t priority = NextPriority();
  if (priority == waiting_.size()) return false;
  passed_over_[priority] = 0;
  Waiting& waiting = waiting_[priority];
  Request* request = waiting.front().get();
  const IoRequest& io = request->io;
  *transfer = {.request = request,
               .direction = io.direction,
               .fd = io.fd,
               .offset = io.offset + request->issued,
               .data = io.data + request->issued.count(),
               .size = std::min(piece_, io.size - request->issued)};
  request->issued += transfer->size;
  ++request->in_flight;
  if (request->issued == io.size) {
    waiting.front().release();
    waiting.pop_front();
  }
  return true;
}

bool TransferQueue::Advance(Transfer* transfer, int64_t result) {
  if (result == -EINTR || result == -EAGAIN) {
    if (++transfer->tries_without_progress < kMaxTriesWithoutProgress) {
      return true;
    }
  }
  if (result < 0 || (result == 0 && transfer->size > Bytes(0))) {
    Finish(transfer->request, Failure(*transfer, result));
    return false;
  }
  CASTOR_CHECK_LE(result, transfer->size.count());
  transfer->offset += Bytes(result);
  transfer->data += result;
  transfer->size -= Bytes(result);
  transfer->tries_without_progress = 0;
  if (transfer->size > Bytes(0)) return true;
  Finish(transfer->request, OkStatus());
  return false;
}

void TransferQueue::Finish(Request* request, Status status) {
  std::unique_ptr<Request> over;
  {
    std::lock_guard lock(mutex_);
    if (!status.ok() && request->status.ok()) request->status = status;
    if (!status.ok() && request->issued < request->io.size) {
      // What has not gone out never will.
      TakeOut(*request).release();
      request->issued = request->io.size;
    }
    if (--request->in_flight > 0 || request->issued < request->io.size) return;
    over.reset(request);
  }
  End(std::move(over));
}

void TransferQueue::End(std::unique_ptr<Request> over) {
  over->io.done(over->status);
  over.reset();  // and with it what `done` holds, before it counts as done
  std::lock_guard lock(mutex_);
  --requests_;
}

}  // namespace castor
