// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_IO_QUEUE_H_
#define CASTOR_OFFLOAD_NVME_IO_QUEUE_H_

// Positional reads and writes that end some time later. An IoQueue moves whole
// requests: it splits them, keeps the drive's queue full, resumes short
// transfers, and checks every completion. Thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

enum class IoDirection : uint8_t { kRead, kWrite };

struct IoRequest {
  IoDirection direction = IoDirection::kRead;
  int fd = -1;
  Bytes offset;               // in the file
  std::byte* data = nullptr;  // must stay valid until done
  Bytes size;
  // Called once, on a thread of the queue, with how the whole request ended.
  std::function<void(const Status&)> done;
};

class IoQueue {
 public:
  virtual ~IoQueue() = default;
  virtual void Submit(IoRequest request) = 0;
  // "io_uring" or "threads".
  virtual std::string_view name() const = 0;
};

struct IoQueueOptions {
  int depth = 32;        // transfers in flight
  Bytes piece = MiB(1);  // largest single transfer
  int threads = 2;       // of the thread queue
};

// io_uring; Unavailable, with the kernel's reason, where it is refused.
Result<std::unique_ptr<IoQueue>> MakeUringIoQueue(
    const IoQueueOptions& options);
// Blocking pread and pwrite on threads: works everywhere.
std::unique_ptr<IoQueue> MakeThreadIoQueue(const IoQueueOptions& options);
// io_uring, or threads where it is refused, which is said once.
std::unique_ptr<IoQueue> MakeIoQueue(const IoQueueOptions& options, Log* log);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_IO_QUEUE_H_
