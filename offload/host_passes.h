// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_HOST_PASSES_H_
#define CASTOR_OFFLOAD_HOST_PASSES_H_

// The passes of an engine over host memory: sums of gradients, their squares,
// updates, parameters that are restored. Each pass comes with the bytes of
// memory that the pass reads and writes (placement/memory_passes.h). By these
// bytes a twin of the host knows the pass's time
// (offload/twin/simulated_host.h). Thread-safe.

#include <cstdint>

#include "chunk/base/units.h"
#include "offload/lane.h"

namespace castor {

enum class HostPass : uint8_t {
  kUpdate,  // of the optimizer, by all cores
  // All else, which memory holds up: gradients are added and squared, and
  // parameters made of their masters again.
  kMemory,
};

class HostPasses {
 public:
  virtual ~HostPasses() = default;
  // Queues `work` on the lane.
  virtual void Queue(Lane& lane, HostPass pass, Bytes traffic,
                     Lane::Work work) = 0;
  // Whether a pass may begin while the last ranges of another end. On a twin
  // the work of a pass is over before its time.
  virtual bool overlap() const { return false; }
  // Those of this machine: a pass takes as long as the work does.
  static HostPasses& Machine();
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_HOST_PASSES_H_
