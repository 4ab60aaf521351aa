// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_QUEUE_URING_IO_QUEUE_H_
#define CASTOR_OFFLOAD_NVME_QUEUE_URING_IO_QUEUE_H_

// An IoQueue on the kernel's io_uring: one thread keeps `depth` transfers with
// the drive. Part of the queues of reads and writes (io_queue.h).

#include <memory>

#include "chunk/base/status.h"
#include "offload/nvme/queue/io_queue.h"

namespace castor {

// Unavailable, with the kernel's reason and what to do about it, where io_uring
// is refused. REQUIRES: `options` are within the ranges that IoQueueOptions
// gives.
Result<std::unique_ptr<IoQueue>> MakeUringIoQueue(
    const IoQueueOptions& options);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_QUEUE_URING_IO_QUEUE_H_
