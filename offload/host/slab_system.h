// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_HOST_SLAB_SYSTEM_H_
#define CASTOR_OFFLOAD_HOST_SLAB_SYSTEM_H_

// What slabs ask of the operating system, in one place so that a test can
// refuse each of it. Thread-safe.

#include <cstddef>
#include <optional>
#include <string>

#include "chunk/base/units.h"
#include "offload/host/available_memory.h"

namespace castor::internal {

class SlabSystem {
 public:
  virtual ~SlabSystem() = default;

  // Zeroed memory of `size`, a multiple of the page size, private to the
  // process and aligned to a huge page where it is at least as large as one.
  // Null, and the reason in `why`, where the system refuses.
  virtual std::byte* Map(Bytes size, std::string* why) const;
  virtual void Unmap(std::byte* data, Bytes size) const;

  // The rest return an empty string, or why the system refused.

  // Asks for transparent huge pages.
  virtual std::string AdviseHugePages(std::byte* data, Bytes size) const;
  // Prefers the NUMA node on which the calling thread runs.
  virtual std::string BindToCallersNode(std::byte* data, Bytes size) const;
  // Prefers the NUMA node with the operating system's number `node`.
  virtual std::string BindToNode(std::byte* data, Bytes size, int node) const;
  // Leaves the pages out of what a child of fork() is given. A copy on write
  // would part the process from pages that a device has pinned.
  virtual std::string KeepFromChildren(std::byte* data, Bytes size) const;
  // Makes the pages present and keeps them so.
  virtual std::string Lock(std::byte* data, Bytes size) const;
  virtual void Unlock(std::byte* data, Bytes size) const;
  // Takes the pages away: touched again, they are zero.
  virtual std::string Drop(std::byte* data, Bytes size) const;

  // How much this process may lock (`ulimit -l`); nothing when unlimited.
  virtual std::optional<Bytes> LockLimit() const;
  virtual std::optional<AvailableMemory> Available() const;
};

// The system itself.
const SlabSystem& RealSlabSystem();

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_HOST_SLAB_SYSTEM_H_
