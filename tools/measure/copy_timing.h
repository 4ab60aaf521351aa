// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MEASURE_COPY_TIMING_H_
#define CASTOR_TOOLS_MEASURE_COPY_TIMING_H_

// What copies between host and device take, queued on lanes as the engine
// queues them: back to back, from a host slab of the device, each direction
// alone and both at once. Owner thread only.

#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/device.h"
#include "tools/measure/samples.h"

namespace castor {

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

}  // namespace castor

#endif  // CASTOR_TOOLS_MEASURE_COPY_TIMING_H_
