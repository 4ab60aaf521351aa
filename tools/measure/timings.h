// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MEASURE_TIMINGS_H_
#define CASTOR_TOOLS_MEASURE_TIMINGS_H_

// What the machine's copies, drives, memory and collectives take, through the
// engine's own code. Owner thread only.

#include <memory>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "offload/device.h"
#include "offload/lanes/executor.h"
#include "offload/nvme/store/nvme_store.h"
#include "offload/worker_pool.h"
#include "tools/measure/samples.h"

namespace castor {

// What copies between host and device take, queued on lanes as the engine
// queues them: back to back, from a host slab of the device, each direction
// alone and both at once.
struct CopyTimes {
  std::vector<TimedSize> to_device;
  std::vector<TimedSize> from_device;
  // While the other direction is as busy.
  std::vector<TimedSize> to_device_duplex;
  std::vector<TimedSize> from_device_duplex;
};

// Takes `buffer` of host and of device memory, over which copies go round, so
// that a buffer larger than the caches is copied from memory. `options` hold
// for each of alone, alone the other way, and both at once. Fails where the
// device or the machine has less memory. REQUIRES: sizes of at least two kinds,
// none above half the buffer.
Result<CopyTimes> TimeCopies(Device& device, Bytes buffer,
                             const std::vector<Bytes>& sizes,
                             const RoundOptions& options);

// What transfers with an NVMe store take while its queue is kept full, and that
// every byte read is the one written.
struct NvmeTimes {
  std::vector<TimedSize> read;
  std::vector<TimedSize> write;
  std::vector<TimedSize> mixed;  // every other transfer writes
  NvmeStoreStats stats;          // of the store at the end
};

// Of one pass over `region` bytes per sample, extents in random order, as many
// under way as `window` bytes hold, at least two. Each size has a region of its
// own in the store. A transfer's time is the time between the ends of two that
// follow each other, so that filling the queue does not count.
//
// A read fails with DataLoss by the store's checksums, and by a stamp that each
// transfer carries: extent and number of the write. `options` hold for each of
// reads, writes and both. REQUIRES: sizes of two kinds at least, multiples of
// 4 KiB that divide the region into four extents or more; store->size() is at
// least region * sizes.size(). The store is closed, also where this fails.
Result<NvmeTimes> TimeNvme(std::unique_ptr<NvmeStore> store, Bytes region,
                           Bytes window, const std::vector<Bytes>& sizes,
                           const RoundOptions& options);

// How much host memory gives to all cores of a worker pool at once, and how
// much of it AdamW makes use of.
struct TimedRate {
  double bytes_per_second = 0;  // the median
  double spread = 0;            // as SpreadOf() has it
  int samples = 0;
};

struct MemoryTimes {
  // The triad a[i] = b[i] + 3 * c[i] of STREAM (McCalpin 1995), which counts
  // bytes read plus bytes written. Plain stores read the overwritten bytes too,
  // and STREAM counts no such read. Some processors have stores that bypass the
  // caches: there the rate is the better of both kinds.
  TimedRate triad;
  // AdamW as kProbedUpdate of placement/memory_passes.h says.
  TimedRate adam;
};

// Works on `buffer` bytes of a host slab on the caller's NUMA node, for each of
// the two as long as `options` say. Fails where the machine has less memory.
// REQUIRES: buffer >= 1 MiB.
Result<MemoryTimes> TimeMemory(WorkerPool& pool, Bytes buffer,
                               const RoundOptions& options);

// What collectives among the ranks of this process take, on chunks of bf16, in
// place, queued back to back on a lane of each rank.
struct CollectiveTimes {
  // By the size of the chunk when whole.
  std::vector<TimedSize> all_gather;
  std::vector<TimedSize> reduce_scatter;
};

// `ranks` are all of one world, and `executor` serves their lanes. Takes
// `buffer` bytes of host memory for each rank, over which the chunks go round.
// Fails where the machine has less memory, and with what ended the world.
// REQUIRES: two ranks at least; sizes are of two kinds at least, even for each
// rank's shard, and none is above the buffer.
Result<CollectiveTimes> TimeCollectives(
    std::span<const std::unique_ptr<Communicator>> ranks, Executor& executor,
    Bytes buffer, const std::vector<Bytes>& sizes, const RoundOptions& options);

}  // namespace castor

#endif  // CASTOR_TOOLS_MEASURE_TIMINGS_H_
