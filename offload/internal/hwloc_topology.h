// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_INTERNAL_HWLOC_TOPOLOGY_H_
#define CASTOR_OFFLOAD_INTERNAL_HWLOC_TOPOLOGY_H_

// The machine as hwloc sees it, with no more of it than Castor asks for. Owning
// pointers; a loaded topology is read from several threads. Included by .cc
// files of this folder only, so that hwloc's types stay here.

#include <hwloc.h>

#include <memory>

namespace castor::internal {

struct HwlocTopologyDeleter {
  void operator()(hwloc_topology* topology) const {
    hwloc_topology_destroy(topology);
  }
};
struct HwlocBitmapDeleter {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, HwlocTopologyDeleter>;
using HwlocBitmap = std::unique_ptr<hwloc_bitmap_s, HwlocBitmapDeleter>;

enum class HwlocCores { kLeaveOut, kKeep };

// NUMA nodes, hardware threads, and cores where asked for: caches and devices
// cost time and say nothing here. Null, and errno, where hwloc refuses.
HwlocTopology LoadHwlocTopology(HwlocCores cores);

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_INTERNAL_HWLOC_TOPOLOGY_H_
