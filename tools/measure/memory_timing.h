// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MEASURE_MEMORY_TIMING_H_
#define CASTOR_TOOLS_MEASURE_MEMORY_TIMING_H_

// How much host memory gives to all cores of a worker pool at once, and how
// much of it AdamW makes use of. Owner thread only.

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/worker_pool.h"
#include "tools/measure/samples.h"

namespace castor {

struct TimedRate {
  double bytes_per_second = 0;  // the median
  double spread = 0;            // as SpreadOf() has it
  int samples = 0;
};

struct MemoryTimes {
  // The triad a[i] = b[i] + 3 * c[i] of STREAM (McCalpin 1995), which counts
  // bytes read plus bytes written. The plain one reads what it overwrites too,
  // which nobody counts, so where the processor has stores that pass the caches
  // by, the better of the two is what memory gives.
  TimedRate triad;
  // AdamW with gradients and copy in bf16 and states in fp32, counted as
  // kAdamBytesPerParameter of placement/tier_model.h.
  TimedRate adam;
};

// Works on `buffer` bytes of a host slab on the caller's NUMA node, for each of
// the two as long as `options` say. Fails where the machine has less memory.
// REQUIRES: buffer >= 1 MiB.
Result<MemoryTimes> TimeMemory(WorkerPool& pool, Bytes buffer,
                               const RoundOptions& options);

}  // namespace castor

#endif  // CASTOR_TOOLS_MEASURE_MEMORY_TIMING_H_
