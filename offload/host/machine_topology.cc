// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/host/machine_topology.h"

#include <fcntl.h>
#include <hwloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

#include "offload/host/hwloc_topology.h"

namespace castor::internal {
namespace {

std::string Reason() {
  return std::error_code(errno, std::generic_category()).message();
}

// Null, and errno, where hwloc has none to give.
HwlocTopology NewTopology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  return HwlocTopology(raw, hwloc_topology_destroy);
}

// A machine that tells of no cores has one for each hardware thread.
int CoresIn(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  const int cores =
      hwloc_get_nbobjs_inside_cpuset_by_type(topology, cpus, HWLOC_OBJ_CORE);
  return cores > 0 ? cores
                   : hwloc_get_nbobjs_inside_cpuset_by_type(topology, cpus,
                                                            HWLOC_OBJ_PU);
}

void AddNodes(hwloc_topology_t topology, MachineTopology* machine) {
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
                                          node)) != nullptr;) {
    const uint64_t memory = node->attr->numanode.local_memory;
    machine->nodes.push_back(
        {.number = static_cast<int>(node->os_index),
         .memory = Bytes(static_cast<int64_t>(
             std::min(memory, static_cast<uint64_t>(INT64_MAX) >> 16))),
         .cores = CoresIn(topology, node->cpuset)});
  }
}

void AddCaches(hwloc_topology_t topology, MachineTopology* machine) {
  static constexpr struct {
    hwloc_obj_type_t type;
    const char* name;
  } kLevels[] = {{HWLOC_OBJ_L1CACHE, "L1d"},
                 {HWLOC_OBJ_L2CACHE, "L2"},
                 {HWLOC_OBJ_L3CACHE, "L3"},
                 {HWLOC_OBJ_L4CACHE, "L4"}};
  for (const auto& level : kLevels) {
    const hwloc_obj_t first =
        hwloc_get_obj_by_type(topology, level.type, /*index=*/0);
    if (first == nullptr || first->attr->cache.size == 0) continue;
    machine->caches.push_back(
        {.name = level.name,
         .size = Bytes(static_cast<int64_t>(first->attr->cache.size)),
         .count = hwloc_get_nbobjs_by_type(topology, level.type)});
  }
}

// The name of the first thing that the system made of a PCI device.
std::string SystemName(hwloc_obj_t device) {
  for (hwloc_obj_t child = device->io_first_child; child != nullptr;
       child = child->next_sibling) {
    if (child->type == HWLOC_OBJ_OS_DEVICE && child->name != nullptr) {
      return child->name;
    }
  }
  return {};
}

void AddDevices(hwloc_topology_t topology, MachineTopology* machine) {
  const bool one_node = machine->nodes.size() <= 1;
  for (hwloc_obj_t device = nullptr;
       (device = hwloc_get_next_pcidev(topology, device)) != nullptr;) {
    const auto& pci = device->attr->pcidev;
    char bus_id[32];
    std::snprintf(
        bus_id, sizeof(bus_id), "%04x:%02x:%02x.%x",
        static_cast<unsigned>(pci.domain), static_cast<unsigned>(pci.bus),
        static_cast<unsigned>(pci.dev), static_cast<unsigned>(pci.func));
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, device);
    int node = -1;
    if (!one_node && near != nullptr && near->nodeset != nullptr &&
        hwloc_bitmap_weight(near->nodeset) == 1) {
      node = hwloc_bitmap_first(near->nodeset);
    }
    machine->devices.push_back({.bus_id = bus_id,
                                .vendor = pci.vendor_id,
                                .class_id = pci.class_id,
                                .name = SystemName(device),
                                .node = node});
  }
}

MachineTopology Describe(hwloc_topology_t topology) {
  MachineTopology machine;
  machine.packages =
      std::max(1, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE));
  machine.cores = CoresIn(topology, hwloc_get_root_obj(topology)->cpuset);
  machine.threads = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
  AddNodes(topology, &machine);
  AddCaches(topology, &machine);
  AddDevices(topology, &machine);
  return machine;
}

// Nothing where hwloc refuses it.
std::optional<MachineTopology> ReadXml(const std::string& text) {
  const HwlocTopology topology = NewTopology();
  // The length counts the zero at the end.
  if (topology == nullptr || text.size() >= INT32_MAX ||
      hwloc_topology_set_xmlbuffer(topology.get(), text.c_str(),
                                   static_cast<int>(text.size() + 1)) != 0 ||
      hwloc_topology_load(topology.get()) != 0) {
    return std::nullopt;
  }
  return Describe(topology.get());
}

// Whether a child process survives reading it, in reasonable time.
bool ChildReads(const std::string& text) {
  constexpr unsigned kMostSeconds = 60;
  const pid_t child = ::fork();
  if (child < 0) return true;  // without a child as well as can be
  if (child == 0) {
    // A crash is an answer: no core of it, no message.
    const rlimit no_core = {0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) ::dup2(nowhere, STDERR_FILENO);
    ::alarm(kMostSeconds);
    ::_exit(ReadXml(text) ? 0 : 1);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

Bytes MachineTopology::memory() const {
  Bytes sum;
  for (const NumaNode& node : nodes) sum += node.memory;
  return sum;
}

Result<MachineTopology> ReadMachineTopology() {
  const HwlocTopology topology = NewTopology();
  if (topology == nullptr || hwloc_topology_load(topology.get()) != 0) {
    return Unavailable("hwloc cannot read the topology of this machine: " +
                       Reason());
  }
  return Describe(topology.get());
}

Result<MachineTopology> ParseMachineTopology(std::string_view xml) {
  const std::string text(xml);
  std::optional<MachineTopology> machine;
  if (ChildReads(text)) machine = ReadXml(text);
  if (!machine) {
    return Malformed(
        "it is no topology that this version of hwloc reads; write one with "
        "`lstopo FILE.xml`");
  }
  return *std::move(machine);
}

}  // namespace castor::internal
