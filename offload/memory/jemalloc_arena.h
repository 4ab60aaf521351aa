// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_JEMALLOC_ARENA_H_
#define CASTOR_OFFLOAD_MEMORY_JEMALLOC_ARENA_H_

// A pinned arena on jemalloc: an arena of jemalloc's whose extent hooks draw on
// the slab.
//
//   Allocate ──▶ mallocx ──▶ small buffers share an extent, larger ones have
//                   │        one each
//                   ▼ extent hooks
//              RangeAllocator over the slab, in pages ◀── buffers whose size
//                                                         class would waste
//
// jemalloc rounds a large size up to one of four between two powers of two,
// which would waste a fifth of pinned memory; so a large buffer whose pages are
// no such class gets an extent without jemalloc, exact to the page. Nothing is
// kept for later: freed pages go back to the slab at once, and jemalloc's own
// bookkeeping lies in ordinary memory. Caches of threads are passed by.

#include <memory>

#include "chunk/base/status.h"
#include "offload/memory/jemalloc_api.h"
#include "offload/memory/pinned_arena.h"

namespace castor {

// Fails as MakePinnedArena, and with Unavailable where jemalloc refuses an
// arena. What `api` points at must outlive the arena.
Result<std::unique_ptr<PinnedArena>> MakeJemallocArena(
    const JemallocApi& api, const PinnedArenaOptions& options);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_MEMORY_JEMALLOC_ARENA_H_
