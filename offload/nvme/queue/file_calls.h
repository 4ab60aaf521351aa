// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_QUEUE_FILE_CALLS_H_
#define CASTOR_OFFLOAD_NVME_QUEUE_FILE_CALLS_H_

// The system calls on a file that can go wrong in more ways than a test can
// provoke, as a table: the kernel's own by default, a misbehaving one in tests.
// Value; what it holds must be callable from several threads. Part of the
// queues of reads and writes (io_queue.h).

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <functional>

namespace castor {

struct FileCalls {
  std::function<ssize_t(int, void*, size_t, off_t)> pread = ::pread;
  std::function<ssize_t(int, const void*, size_t, off_t)> pwrite = ::pwrite;
  std::function<int(int, int, off_t, off_t)> fallocate = ::fallocate;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_QUEUE_FILE_CALLS_H_
