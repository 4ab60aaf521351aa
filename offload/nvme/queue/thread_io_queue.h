// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_QUEUE_THREAD_IO_QUEUE_H_
#define CASTOR_OFFLOAD_NVME_QUEUE_THREAD_IO_QUEUE_H_

// An IoQueue of blocking pread and pwrite on threads of its own: works
// everywhere, and keeps one transfer per thread in flight. Part of the queues
// of reads and writes (io_queue.h).

#include <memory>

#include "offload/nvme/queue/file_calls.h"
#include "offload/nvme/queue/io_queue.h"

namespace castor {

// REQUIRES: `options` are within the ranges that IoQueueOptions gives.
std::unique_ptr<IoQueue> MakeThreadIoQueue(const IoQueueOptions& options,
                                           FileCalls calls = {});

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_QUEUE_THREAD_IO_QUEUE_H_
