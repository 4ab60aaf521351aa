// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_QUEUE_IO_QUEUE_H_
#define CASTOR_OFFLOAD_NVME_QUEUE_IO_QUEUE_H_

// Positional reads and writes that end some time later. An IoQueue moves whole
// requests: it cuts them into transfers, keeps the drive's queue full across
// requests, starts what is urgent before what is not, resumes short transfers,
// and checks every completion. Requests in flight at the same time are not
// ordered among each other. Thread-safe.
//
// Of the transfers that wait, demand goes before prefetch before write-back
// before the optimizer, first in first out within each. So that nothing
// starves, a priority that was passed over `patience` times has its turn: of P
// priorities, what waits first in one goes out after at most
// patience + P - 1 transfers of other priorities.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

enum class IoDirection : uint8_t { kRead, kWrite };

enum class IoPriority : uint8_t {
  kDemand,     // somebody waits for it
  kPrefetch,   // somebody will
  kWriteBack,  // nobody does, but memory is held until it is done
  kOptimizer,  // states on their way to an update and back
};
inline constexpr int kIoPriorities = 4;

struct IoRequest {
  IoDirection direction = IoDirection::kRead;
  IoPriority priority = IoPriority::kDemand;
  int fd = -1;                // must stay open until done
  Bytes offset;               // in the file
  std::byte* data = nullptr;  // must stay valid until done; writes only read it
  Bytes size;                 // any, also more than 2 GiB
  // Called once with how the whole request ended: ok when all bytes were moved,
  // else IoError with the direction, the place and the system's reason, or
  // Aborted where it was cancelled. On a thread of the queue, or on the thread
  // that calls Cancel. It may submit, and must not hold the thread up: a
  // checksum of the bytes is about what it may cost.
  std::function<void(const Status&)> done;
};

// Names a request to the queue that took it. Value.
struct IoTicket {
  uint64_t id = 0;  // 0: of no request
};

class IoQueue {
 public:
  // Waits until every request submitted is done. REQUIRES: every other call has
  // returned, which a request that is done does not imply.
  virtual ~IoQueue() = default;

  // Never blocks on the drive, and never calls `done` before it returns.
  virtual IoTicket Submit(IoRequest request) = 0;

  // Puts what of a request still waits at the end of a more urgent priority.
  // False, and nothing happens, where it has that priority or a more urgent
  // one, or has gone out whole.
  virtual bool Raise(IoTicket ticket, IoPriority priority) = 0;

  // Drops what of a request still waits: it ends with Aborted when its
  // transfers with the drive have ended, before Cancel returns if there are
  // none. After that its memory is free, and may have been written in part.
  // False, and nothing happens, where all of it has gone out.
  virtual bool Cancel(IoTicket ticket) = 0;

  // Prepares `fd` for many transfers. Unavailable with the reason where that is
  // refused; it then serves all the same. REQUIRES: for this and the next,
  // called at most once and before Submit.
  virtual Status RegisterFile(int /*fd*/) { return OkStatus(); }

  // Prepares memory, which must outlive the queue, so that transfers within it
  // cost less; others are as before. How much of it the system holds ready: all
  // of it, or 0 where the queue has no use for that. Unavailable with the
  // numbers and the remedy where the limit of locked memory refuses it. Blocks.
  virtual Result<Bytes> RegisterMemory(std::span<std::byte> /*memory*/) {
    return Bytes(0);
  }

  // "io_uring", "threads" or "simulated".
  virtual std::string_view name() const = 0;
};

// Makes the queue of a drive, by its number among those of one store.
using IoQueueFactory = std::function<std::unique_ptr<IoQueue>(size_t drive)>;

struct IoQueueOptions {
  // Transfers in flight, 1 to 4096: enough for a drive to work on all its
  // channels. The thread queue has as many as it has threads.
  int depth = 32;
  // Largest single transfer, a multiple of 4 KiB up to 512 MiB: the kernel
  // moves no more than 2 GiB at once, and registered buffers end at 1 GiB.
  Bytes piece = MiB(1);
  int threads = 2;  // of the thread queue, at least 1
  // How often the transfers of a priority may be passed over by more urgent
  // ones before it is their turn, at least 1. 16: urgent transfers have at
  // least sixteen of eighteen places.
  int patience = 16;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_QUEUE_IO_QUEUE_H_
