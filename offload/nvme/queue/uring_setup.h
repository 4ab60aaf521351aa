// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_QUEUE_URING_SETUP_H_
#define CASTOR_OFFLOAD_NVME_QUEUE_URING_SETUP_H_

// What is asked of the kernel before an io_uring serves, each refusal with its
// reason and the remedy. Stateless; thread-safe for different rings. Part of
// the queues of reads and writes (io_queue.h).

#include <cstddef>
#include <span>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

struct io_uring;

namespace castor {

// The kernel takes no larger buffer: memory is registered in pieces of this
// size, the last one smaller. Buffer i begins at i times this.
inline constexpr Bytes kRegisteredPiece = GiB(1);

// Unavailable where the kernel has no io_uring, or none that reads and writes,
// or refuses it here. To be ended with io_uring_queue_exit where it succeeds.
Status SetUpRing(int entries, io_uring* ring);

// `fd` becomes fixed file 0.
Status RegisterRingFile(int fd, io_uring* ring);

// All of `memory`, or none: Unavailable with the bytes and the limit.
Status RegisterRingMemory(std::span<std::byte> memory, io_uring* ring);

// Why io_uring cannot be had, from the errno with which the kernel said so.
Status RingRefused(int error);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_QUEUE_URING_SETUP_H_
