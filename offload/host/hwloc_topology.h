// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_HOST_HWLOC_TOPOLOGY_H_
#define CASTOR_OFFLOAD_HOST_HWLOC_TOPOLOGY_H_

// The machine as hwloc sees it, with no more of it than Castor asks for. A
// loaded topology is read from several threads. Included by .cc files of this
// folder only, so that hwloc's types stay here. Part of the machine's topology
// (machine_topology.h).

#include <hwloc.h>

#include <memory>

namespace castor::internal {

struct HwlocBitmapDeleter {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using HwlocTopology = std::shared_ptr<hwloc_topology>;
using HwlocBitmap = std::unique_ptr<hwloc_bitmap_s, HwlocBitmapDeleter>;

// NUMA nodes, cores and hardware threads: caches and devices cost time and say
// nothing here. Null, and errno, where hwloc refuses. The first call looks at
// the machine, which takes milliseconds, and tens of them where hwloc has
// plugins to load; later ones have the same answer. Any thread.
HwlocTopology MachineHwlocTopology();

// The next call looks again. For tests, which tell hwloc of other machines in
// the environment.
void ForgetHwlocTopology();

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_HOST_HWLOC_TOPOLOGY_H_
