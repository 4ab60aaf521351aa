// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_TRANSFER_QUEUE_H_
#define CASTOR_OFFLOAD_NVME_TRANSFER_QUEUE_H_

// What every IoQueue does apart from talking to the kernel: requests come in,
// transfers of at most one piece go out, reads before writes, first in first
// out within each; what the kernel answered to a transfer comes back, and says
// whether to go on with it. The first failure of a request cancels its
// transfers that have not gone out. Thread-safe; `done` is called without a
// lock, on the thread that brings the request's last answer.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/nvme/io_queue.h"

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

  // REQUIRES: `piece` is what IoQueueOptions says.
  explicit TransferQueue(Bytes piece);
  // REQUIRES: drained().
  ~TransferQueue();
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  // REQUIRES: not closed, request.done is set.
  void Add(IoRequest request);
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
  bool NextLocked(Transfer* transfer);
  void Finish(Request* request, Status status);

  const Bytes piece_;
  mutable std::mutex mutex_;
  std::condition_variable waiting_;              // for WaitNext
  std::deque<std::unique_ptr<Request>> reads_;   // guarded by mutex_
  std::deque<std::unique_ptr<Request>> writes_;  // guarded by mutex_
  int64_t requests_ = 0;                         // guarded by mutex_; not done
  bool closed_ = false;                          // guarded by mutex_
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_TRANSFER_QUEUE_H_
