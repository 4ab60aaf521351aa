// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_HOST_MACHINE_TOPOLOGY_H_
#define CASTOR_OFFLOAD_HOST_MACHINE_TOPOLOGY_H_

// What a machine is made of, as hwloc sees it: for people, and for choosing
// where memory and threads belong. Of this machine, or of the XML that hwloc
// wrote on another one. Values and functions, thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor::internal {

struct NumaNode {
  int number = 0;  // the operating system's
  Bytes memory;
  int cores = 0;  // near it
};

// All caches of one kind.
struct CacheLevel {
  std::string name;  // "L1d", "L2", "L3"
  Bytes size;        // of each
  int count = 0;
};

struct PciDevice {
  std::string bus_id;     // "0000:3b:00.0"
  uint16_t vendor = 0;    // 0x10de: NVIDIA
  uint16_t class_id = 0;  // 0x0302: 3D controller
  std::string name;       // "nvme0n1", "cuda0"; empty where not known
  int node = -1;          // the nearest NUMA node; -1: all are as near
};

struct MachineTopology {
  int packages = 0;
  int cores = 0;
  int threads = 0;  // of hardware
  std::vector<NumaNode> nodes;
  std::vector<CacheLevel> caches;  // from the nearest to the core
  std::vector<PciDevice> devices;  // GPUs, drives, network cards

  Bytes memory() const;
};

// What this process may use of this machine. Unavailable where the system does
// not tell.
Result<MachineTopology> ReadMachineTopology();

// What `lstopo FILE.xml` wrote. Malformed where `xml` is anything else. hwloc
// trusts what it reads, and damaged text may make it crash: so a child process
// reads it first, and what ends the child is malformed. Blocks.
Result<MachineTopology> ParseMachineTopology(std::string_view xml);

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_HOST_MACHINE_TOPOLOGY_H_
