// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MEASURE_COLLECTIVE_TIMING_H_
#define CASTOR_TOOLS_MEASURE_COLLECTIVE_TIMING_H_

// What collectives among the ranks of this process take, on chunks of bf16, in
// place, queued back to back on a lane of each rank. Owner thread only.

#include <memory>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "offload/executor.h"
#include "tools/measure/samples.h"

namespace castor {

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

#endif  // CASTOR_TOOLS_MEASURE_COLLECTIVE_TIMING_H_
