// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/queue/io_queue_factory.h"

#include <fmt/format.h>

#include <utility>

#include "chunk/base/status.h"
#include "offload/nvme/queue/thread_io_queue.h"
#include "offload/nvme/queue/uring_io_queue.h"

namespace castor {

std::unique_ptr<IoQueue> MakeIoQueue(const IoQueueOptions& options, Log* log) {
  Result<std::unique_ptr<IoQueue>> uring = MakeUringIoQueue(options);
  if (uring.ok()) return std::move(uring).value();
  if (log != nullptr) {
    log->WarnOnce(
        "nvme.io_uring",
        fmt::format("NVMe transfers run on {} blocking threads, which is "
                    "slower: {}",
                    options.threads, uring.status().message()));
  }
  return MakeThreadIoQueue(options);
}

}  // namespace castor
