// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_HOST_AVAILABLE_MEMORY_H_
#define CASTOR_OFFLOAD_HOST_AVAILABLE_MEMORY_H_

// How much memory this process can still have before the kernel kills
// something: the least of what the machine has available and of what each
// cgroup above the process still allows. A process that touches more than that
// ends without a message, so slabs ask first.

#include <optional>
#include <string>

#include "chunk/base/units.h"
#include "offload/host/cgroup_folders.h"

namespace castor::internal {

struct AvailableMemory {
  Bytes bytes;
  std::string source;  // what sets the limit, for an error message
};

// Nothing when the system does not say. Page cache counts as available.
std::optional<AvailableMemory> ReadAvailableMemory(
    const SystemPaths& paths = {});

// What threads' stacks, page tables and the C library take beside slabs and
// arrays, most of it behind the last of these. Ranks that trained in a memory
// cgroup with less than this left were killed, and none with more.
inline constexpr Bytes kBesideSlabs = MiB(16);

// What slabs and arrays may take of it: the rest stays for the process itself.
std::optional<AvailableMemory> ReadSpareMemory(const SystemPaths& paths = {});

// The most bytes of this process that were in memory at one time. Nothing when
// the system does not say.
std::optional<Bytes> ReadPeakResident(const SystemPaths& paths = {});

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_HOST_AVAILABLE_MEMORY_H_
