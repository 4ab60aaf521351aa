// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_HOST_JEMALLOC_H_
#define CASTOR_OFFLOAD_MEMORY_HOST_JEMALLOC_H_

// The jemalloc of the process that Castor was loaded into, where it has one: a
// shared library must not bring its own (see offload/memory/linked_jemalloc.h).
// Thread-safe. Part of the arena for jemalloc (jemalloc_arena.h).

#include <memory>
#include <optional>

#include "chunk/base/status.h"
#include "offload/memory/jemalloc_api.h"
#include "offload/memory/pinned_arena.h"

namespace castor {

// Nothing unless the process exports mallocx and its kin, of version 5 or
// later, whose extent hooks are what the arena needs.
std::optional<JemallocApi> HostJemalloc();

// An arena on the host process's jemalloc, or else Castor's own. Fails as
// MakePinnedArena.
Result<std::unique_ptr<PinnedArena>> MakeHostPinnedArena(
    const PinnedArenaOptions& options);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_MEMORY_HOST_JEMALLOC_H_
