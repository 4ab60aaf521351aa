// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_IO_QUEUE_H_
#define CASTOR_OFFLOAD_NVME_IO_QUEUE_H_

// Positional reads and writes that end some time later. An IoQueue moves whole
// requests: it cuts them into transfers, keeps the drive's queue full across
// requests, starts reads before writes where both wait, resumes short
// transfers, and checks every completion. Requests in flight at the same time
// are not ordered among each other. Thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

enum class IoDirection : uint8_t { kRead, kWrite };

struct IoRequest {
  IoDirection direction = IoDirection::kRead;
  int fd = -1;                // must stay open until done
  Bytes offset;               // in the file
  std::byte* data = nullptr;  // must stay valid until done; writes only read it
  Bytes size;                 // any, also more than 2 GiB
  // Called once, on a thread of the queue, with how the whole request ended:
  // ok when all bytes were moved, else IoError with the direction, the place
  // and the system's reason. It may submit, and must not hold the thread up.
  std::function<void(const Status&)> done;
};

class IoQueue {
 public:
  // Waits until every request submitted is done. REQUIRES: every call of Submit
  // has returned, which a request that is done does not imply.
  virtual ~IoQueue() = default;
  // Never blocks on the drive, and never calls `done` before it returns.
  virtual void Submit(IoRequest request) = 0;
  // "io_uring" or "threads".
  virtual std::string_view name() const = 0;
};

struct IoQueueOptions {
  // Transfers in flight, 1 to 4096: enough for a drive to work on all its
  // channels. The thread queue has as many as it has threads.
  int depth = 32;
  // Largest single transfer, a multiple of 4 KiB up to 512 MiB: the kernel
  // moves no more than 2 GiB at once, and registered buffers end at 1 GiB.
  Bytes piece = MiB(1);
  int threads = 2;  // of the thread queue, at least 1
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_IO_QUEUE_H_
