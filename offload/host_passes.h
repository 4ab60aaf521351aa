// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_HOST_PASSES_H_
#define CASTOR_OFFLOAD_HOST_PASSES_H_

// The passes of an engine over host memory: sums of gradients, their squares,
// updates, parameters that are restored. Whoever queues a pass says how many
// bytes of memory the pass reads and writes (placement/memory_passes.h), so
// that a stand-in for the host knows how long the pass takes
// (offload/twin/simulated_host.h). Thread-safe.

#include <cstdint>

#include "chunk/base/units.h"
#include "offload/lane.h"

namespace castor {

enum class HostPass : uint8_t {
  kUpdate,   // of the optimizer, by all cores
  kSum,      // a gradient is added to a sum, and its squares are summed up
  kRestore,  // parameters are made of their masters again
};

class HostPasses {
 public:
  virtual ~HostPasses() = default;
  // Queues `work` on the lane.
  virtual void Queue(Lane& lane, HostPass pass, Bytes traffic,
                     Lane::Work work) = 0;
  // Those of this machine: a pass takes as long as the work does.
  static HostPasses& Machine();
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_HOST_PASSES_H_
