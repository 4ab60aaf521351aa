// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/host/cpu_map.h"

#include <hwloc.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "offload/host/hwloc_topology.h"

namespace castor::internal {
namespace {

// What the threads of this process may run on; everything where the system
// does not say.
HwlocBitmap Allowed(hwloc_topology_t topology) {
  HwlocBitmap allowed(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology, allowed.get(), HWLOC_CPUBIND_PROCESS) != 0 ||
      hwloc_bitmap_iszero(allowed.get())) {
    hwloc_bitmap_copy(allowed.get(),
                      hwloc_topology_get_allowed_cpuset(topology));
  }
  return allowed;
}

}  // namespace

struct CpuMap::Impl {
  HwlocTopology topology;
  std::vector<HwlocBitmap> cpus;  // by node: what we may use of it
};

CpuMap::CpuMap() : impl_(std::make_unique<Impl>()) {
  impl_->topology = MachineHwlocTopology();
  hwloc_topology* const topology = impl_->topology.get();
  if (topology == nullptr) {
    node_of_core_ = {0};
    return;
  }
  const HwlocBitmap allowed = Allowed(topology);
  // Some virtual machines tell of hardware threads only.
  const bool has_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  std::vector<int> first_node;  // by our node: hwloc's number
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology, type, core)) != nullptr;) {
    HwlocBitmap usable(hwloc_bitmap_alloc());
    hwloc_bitmap_and(usable.get(), core->cpuset, allowed.get());
    if (hwloc_bitmap_iszero(usable.get())) continue;
    const int first = hwloc_bitmap_first(core->nodeset);
    size_t node = 0;
    while (node < first_node.size() && first_node[node] != first) ++node;
    if (node == first_node.size()) {
      first_node.push_back(first);
      impl_->cpus.emplace_back(hwloc_bitmap_alloc());
    }
    hwloc_bitmap_t cpus = impl_->cpus[node].get();
    hwloc_bitmap_or(cpus, cpus, usable.get());
    node_of_core_.push_back(static_cast<int>(node));
  }
  if (node_of_core_.empty()) node_of_core_ = {0};
  if (impl_->cpus.size() > 1) nodes_ = static_cast<int>(impl_->cpus.size());
}

CpuMap::~CpuMap() = default;

std::string CpuMap::BindCallingThread(int node) const {
  if (static_cast<size_t>(node) >= impl_->cpus.size()) return "";
  if (hwloc_set_cpubind(impl_->topology.get(),
                        impl_->cpus[static_cast<size_t>(node)].get(),
                        HWLOC_CPUBIND_THREAD) == 0) {
    return "";
  }
  return std::error_code(errno, std::generic_category()).message();
}

int CpuMap::NodeOf(const void* memory) const {
  if (nodes_ == 1) return -1;
  hwloc_topology* const topology = impl_->topology.get();
  const HwlocBitmap nodes(hwloc_bitmap_alloc());
  if (hwloc_get_area_memlocation(topology, memory, 1, nodes.get(),
                                 HWLOC_MEMBIND_BYNODESET) != 0 ||
      hwloc_bitmap_iszero(nodes.get())) {
    return -1;
  }
  const HwlocBitmap near(hwloc_bitmap_alloc());
  hwloc_cpuset_from_nodeset(topology, near.get(), nodes.get());
  for (size_t node = 0; node < impl_->cpus.size(); ++node) {
    if (hwloc_bitmap_intersects(near.get(), impl_->cpus[node].get())) {
      return static_cast<int>(node);
    }
  }
  return -1;
}

}  // namespace castor::internal
