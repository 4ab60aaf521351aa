// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/host/slab_system.h"

#include <hwloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <memory>
#include <new>
#include <system_error>

#include "offload/host/hwloc_topology.h"

namespace castor::internal {
namespace {

// What x86-64 and arm64 with small pages use. Elsewhere huge pages are larger,
// and this alignment merely does not help.
constexpr size_t kHugePage = 2 << 20;

std::string ErrnoText(int error) {
  return std::error_code(error, std::generic_category()).message();
}

size_t Count(Bytes size) { return static_cast<size_t>(size.count()); }

// Not strict: when the nodes are full, memory of another one is better than the
// kernel's killing this process.
std::string Bind(hwloc_topology_t topology, std::byte* data, Bytes size,
                 const hwloc_bitmap_s* nodes) {
  if (hwloc_set_area_membind(topology, data, Count(size), nodes,
                             HWLOC_MEMBIND_BIND,
                             HWLOC_MEMBIND_BYNODESET) != 0) {
    return ErrnoText(errno);
  }
  return "";
}

}  // namespace

std::byte* SlabSystem::Map(Bytes size, std::string* why) const {
  const size_t wanted = Count(size);
  // A huge page must start at a multiple of its size: map one more, and give
  // back what sticks out at both ends.
  const size_t extra = wanted >= kHugePage ? kHugePage : 0;
  void* mapped = mmap(nullptr, wanted + extra, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    *why = ErrnoText(errno);
    return nullptr;
  }
  auto* start = static_cast<std::byte*>(mapped);
  if (extra > 0) {
    const size_t past = reinterpret_cast<uintptr_t>(start) % kHugePage;
    const size_t head = past == 0 ? 0 : kHugePage - past;
    if (head > 0) munmap(start, head);
    start += head;
    if (head < extra) munmap(start + wanted, extra - head);
  }
  return start;
}

void SlabSystem::Unmap(std::byte* data, Bytes size) const {
  munmap(data, Count(size));
}

std::string SlabSystem::AdviseHugePages(std::byte* data, Bytes size) const {
  // madvise succeeds even where the administrator has switched them off.
  std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  if (!std::getline(setting, line)) return "the kernel has none";
  if (line.find("[never]") != std::string::npos) return "switched off";
  if (madvise(data, Count(size), MADV_HUGEPAGE) != 0) return ErrnoText(errno);
  return "";
}

std::string SlabSystem::KeepFromChildren(std::byte* data, Bytes size) const {
  return madvise(data, Count(size), MADV_DONTFORK) == 0 ? "" : ErrnoText(errno);
}

std::string SlabSystem::BindToCallersNode(std::byte* data, Bytes size) const {
  const HwlocTopology topology = MachineHwlocTopology();
  if (topology == nullptr) return "the machine's topology cannot be read";
  if (hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE) <= 1) {
    return "";  // all memory is on the caller's node
  }
  const HwlocBitmap cpus(hwloc_bitmap_alloc());
  const HwlocBitmap node(hwloc_bitmap_alloc());
  if (hwloc_get_last_cpu_location(topology.get(), cpus.get(),
                                  HWLOC_CPUBIND_THREAD) != 0) {
    return "the calling thread's processor is not known";
  }
  hwloc_cpuset_to_nodeset(topology.get(), cpus.get(), node.get());
  return Bind(topology.get(), data, size, node.get());
}

std::string SlabSystem::BindToNode(std::byte* data, Bytes size,
                                   int node) const {
  const HwlocTopology topology = MachineHwlocTopology();
  if (topology == nullptr) return "the machine's topology cannot be read";
  const hwloc_obj_t object = hwloc_get_numanode_obj_by_os_index(
      topology.get(), static_cast<unsigned>(node));
  if (object == nullptr) {
    return "there is no NUMA node " + std::to_string(node) +
           " for this process";
  }
  if (hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE) <= 1) {
    return "";  // all memory is on it
  }
  return Bind(topology.get(), data, size, object->nodeset);
}

std::string SlabSystem::Lock(std::byte* data, Bytes size) const {
  if (mlock(data, Count(size)) == 0) return "";
  const int error = errno;
  munlock(data, Count(size));  // some of it may have been locked
  return ErrnoText(error);
}

void SlabSystem::Unlock(std::byte* data, Bytes size) const {
  munlock(data, Count(size));
}

std::string SlabSystem::Drop(std::byte* data, Bytes size) const {
  return madvise(data, Count(size), MADV_DONTNEED) == 0 ? "" : ErrnoText(errno);
}

std::optional<Bytes> SlabSystem::LockLimit() const {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return std::nullopt;
  if (limit.rlim_cur > static_cast<rlim_t>(INT64_MAX)) return std::nullopt;
  return Bytes(static_cast<int64_t>(limit.rlim_cur));
}

std::optional<AvailableMemory> SlabSystem::Available() const {
  return ReadSpareMemory();
}

const SlabSystem& RealSlabSystem() {
  // Never destroyed: a slab may outlive main. Nor allocated, which would leak
  // whenever a shared library that holds this is unloaded.
  alignas(SlabSystem) static std::byte storage[sizeof(SlabSystem)];
  static const SlabSystem* const system = new (storage) SlabSystem();
  return *system;
}

}  // namespace castor::internal
