// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_QUEUE_IO_QUEUE_FACTORY_H_
#define CASTOR_OFFLOAD_NVME_QUEUE_IO_QUEUE_FACTORY_H_

// Chooses the best IoQueue that this machine gives. Part of the queues of reads
// and writes (io_queue.h).

#include <memory>

#include "chunk/base/log.h"
#include "offload/nvme/queue/io_queue.h"

namespace castor {

// io_uring, or threads where it is refused, which is said once. `log` may be
// null. REQUIRES: `options` are within the ranges that IoQueueOptions gives.
std::unique_ptr<IoQueue> MakeIoQueue(const IoQueueOptions& options, Log* log);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_QUEUE_IO_QUEUE_FACTORY_H_
