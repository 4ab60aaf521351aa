// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_HOST_CPU_MAP_H_
#define CASTOR_OFFLOAD_HOST_CPU_MAP_H_

// The cores that this process may run on, and the NUMA nodes they belong to, as
// hwloc saw them when the map was made. Immutable, thread-safe. Part of the
// machine's topology (machine_topology.h).

#include <memory>
#include <string>
#include <vector>

namespace castor::internal {

class CpuMap {
 public:
  CpuMap();
  ~CpuMap();
  CpuMap(const CpuMap&) = delete;
  CpuMap& operator=(const CpuMap&) = delete;

  // For each core of which at least one hardware thread is in the affinity mask
  // of any thread of the process (a trainer may have pinned the calling one):
  // which of the nodes() it is near to. At least one.
  const std::vector<int>& node_of_core() const { return node_of_core_; }
  int nodes() const { return nodes_; }

  // Lets the calling thread run on the cores of `node` only. Returns an empty
  // string, or why the system refused.
  std::string BindCallingThread(int node) const;

  // The node whose cores are nearest to the page at `memory`; -1 where that
  // says nothing: there is one node only, the page does not exist yet, or it is
  // near to no core of ours.
  int NodeOf(const void* memory) const;

 private:
  struct Impl;  // hwloc's types
  std::unique_ptr<Impl> impl_;
  std::vector<int> node_of_core_;
  int nodes_ = 1;
};

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_HOST_CPU_MAP_H_
