// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_QUEUE_TRANSFER_QUEUE_H_
#define CASTOR_OFFLOAD_NVME_QUEUE_TRANSFER_QUEUE_H_

// What every IoQueue does apart from talking to the kernel: requests come in,
// transfers of at most one piece go out in the order that io_queue.h tells;
// what the kernel answered to a transfer comes back, and says whether to go on
// with it. The first failure of a request cancels its transfers that have not
// gone out. Thread-safe; `done` is called without a lock, on the thread that
// brings the request's last answer or cancels what was left of it. Part of the
// queues of reads and writes (io_queue.h).

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/nvme/queue/io_queue.h"

namespace castor {

class TransferQueue {
 public:
  struct Request;

  // What is still to be moved by one system call.
  struct Transfer {
    Request* request = nullptr;
    IoDirection direction = IoDirection::kRead;
    int fd = -1;
    Bytes offset;
    std::byte* data = nullptr;
    Bytes size;  // zero for a request of no bytes: answer 0 without a call
    int tries_without_progress = 0;
  };

  // REQUIRES: both are what IoQueueOptions says.
  TransferQueue(Bytes piece, int patience);
  // REQUIRES: drained().
  ~TransferQueue();
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  // REQUIRES: not closed, request.done is set.
  IoTicket Add(IoRequest request);
  // As those of IoQueue.
  bool Raise(IoTicket ticket, IoPriority priority);
  bool Cancel(IoTicket ticket);
  // No request will be added any more.
  void Close();

  // The next transfer to start; false where none waits.
  bool TryNext(Transfer* transfer);
  // Blocks for the next transfer; false once closed and none waits.
  bool WaitNext(Transfer* transfer);

  // Takes the kernel's answer to `transfer`: bytes moved, or a negative errno.
  // True: `transfer` is now what is left and has to be issued again. False: it
  // is over, and if it was the last of its request, `done` has been called.
  bool Advance(Transfer* transfer, int64_t result);

  bool closed() const;
  // Closed, and every request added is done.
  bool drained() const;

 private:
  using Waiting = std::deque<std::unique_ptr<Request>>;

  // All three REQUIRE mutex_.
  bool NextLocked(Transfer* transfer);
  // The priority whose turn it is; the number of priorities where none waits.
  size_t NextPriority();
  std::unique_ptr<Request> TakeOut(const Request& request);
  // Null where no such request waits. REQUIRES mutex_.
  Request* Find(IoTicket ticket) const;

  void Finish(Request* request, Status status);
  void End(std::unique_ptr<Request> over);

  const Bytes piece_;
  const int patience_;
  mutable std::mutex mutex_;
  std::condition_variable more_;  // for WaitNext
  // All guarded by mutex_.
  std::array<Waiting, kIoPriorities> waiting_;
  // How often transfers of more urgent priorities went out while some of this
  // one waited, since it last had its turn.
  std::array<int, kIoPriorities> passed_over_ = {};
  uint64_t last_id_ = 0;
  int64_t requests_ = 0;  // not done
  bool closed_ = false;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_QUEUE_TRANSFER_QUEUE_H_
