// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MEASURE_NVME_TIMING_H_
#define CASTOR_TOOLS_MEASURE_NVME_TIMING_H_

// What transfers with an NVMe store take while its queue is kept full, and that
// every byte read is the one written. Owner thread only.

#include <memory>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/nvme/nvme_store.h"
#include "tools/measure/samples.h"

namespace castor {

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

}  // namespace castor

#endif  // CASTOR_TOOLS_MEASURE_NVME_TIMING_H_
