// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/host/hwloc_topology.h"

#include <mutex>

namespace castor::internal {
namespace {

HwlocTopology Load() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  HwlocTopology topology(raw, hwloc_topology_destroy);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  // Without groups every node seems to have all processors of the machine.
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_GROUP,
                                 HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_CORE,
                                 HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

std::mutex mutex;
HwlocTopology kept;  // under the mutex

}  // namespace

HwlocTopology MachineHwlocTopology() {
  std::lock_guard lock(mutex);
  if (kept == nullptr) kept = Load();
  return kept;
}

void ForgetHwlocTopology() {
  std::lock_guard lock(mutex);
  kept = nullptr;
}

}  // namespace castor::internal
