// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_QUEUE_SIMULATED_IO_QUEUE_H_
#define CASTOR_OFFLOAD_NVME_QUEUE_SIMULATED_IO_QUEUE_H_

// The twin of a drive: an IoQueue that moves the bytes, with pread and pwrite
// on an executor, and ends each transfer no sooner than a drive of the given
// bandwidth and latency would. Transfers in flight share the drive's wire,
// reads and writes alike, in the order in which they go out; what waits goes
// out by priority, as on every queue.
//
// A timer ends what is modelled, so that no thread of the executor is held
// meanwhile. On the real clock (SteadyTimer) a transfer takes at least what the
// system takes for it, and a thread of the executor while it does. On a virtual
// one (VirtualExecutor, as both) it takes the modelled time exactly.

#include <memory>

#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"
#include "offload/nvme/queue/file_calls.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/twin/simulated_link.h"
#include "placement/tier_model.h"
#include "placement/timeline/wires.h"

namespace castor {

// One drive of `model`, as links: to the device is from the drive, a read. A
// direction that is not known takes no time.
SimulatedLinkModels DriveModelOf(const TierModel& model);

struct SimulatedIoQueueOptions {
  IoQueueOptions queue = {};  // its depth, piece and patience
  // The drive, as DriveModelOf has it; several queues may share one. All three
  // must outlive the queue.
  SimulatedLinks* links = nullptr;
  // What transfers take their time of, in place of `links`, with the device and
  // the host; outlives the queue. Null: the drive's own wire.
  internal::Wires* wires = nullptr;
  Executor* executor = nullptr;
  Timer* timer = nullptr;
  FileCalls calls = {};
};

// REQUIRES: `options.queue` is within the ranges that IoQueueOptions gives.
std::unique_ptr<IoQueue> MakeSimulatedIoQueue(SimulatedIoQueueOptions options);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_QUEUE_SIMULATED_IO_QUEUE_H_
