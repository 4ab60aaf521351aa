// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/transfer_queue.h"

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
  Bytes issued;
  int64_t in_flight = 0;
  Status status;  // the first failure
};

TransferQueue::TransferQueue(Bytes piece) : piece_(piece) {
  CASTOR_CHECK_GE(piece, KiB(4));
  CASTOR_CHECK_LE(piece, MiB(512));
  CASTOR_CHECK_EQ(piece % KiB(4), Bytes(0));
}

TransferQueue::~TransferQueue() { CASTOR_CHECK(drained()); }

void TransferQueue::Add(IoRequest request) {
  CASTOR_CHECK(request.done != nullptr);
  CASTOR_CHECK_GE(request.size, Bytes(0));
  CASTOR_CHECK_GE(request.offset, Bytes(0));
  auto added = std::make_unique<Request>();
  added->io = std::move(request);
  std::lock_guard lock(mutex_);
  CASTOR_CHECK(!closed_);
  auto& queue = added->io.direction == IoDirection::kRead ? reads_ : writes_;
  queue.push_back(std::move(added));
  ++requests_;
  // All, because one request may keep every waiting thread busy; under the
  // lock, because once it is released the request may end and all go away.
  waiting_.notify_all();
}

void TransferQueue::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  waiting_.notify_all();
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
    waiting_.wait(lock);
  }
  return true;
}

bool TransferQueue::NextLocked(Transfer* transfer) {
  auto& queue = reads_.empty() ? writes_ : reads_;
  if (queue.empty()) return false;
  Request* request = queue.front().get();
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
    queue.front().release();
    queue.pop_front();
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
      auto& queue =
          request->io.direction == IoDirection::kRead ? reads_ : writes_;
      auto place = std::find_if(
          queue.begin(), queue.end(),
          [&](const auto& waiting) { return waiting.get() == request; });
      CASTOR_CHECK(place != queue.end());
      place->release();
      queue.erase(place);
      request->issued = request->io.size;
    }
    if (--request->in_flight > 0 || request->issued < request->io.size) return;
    over.reset(request);
  }
  over->io.done(over->status);
  over.reset();  // and with it what `done` holds, before it counts as done
  std::lock_guard lock(mutex_);
  --requests_;
}

}  // namespace castor
