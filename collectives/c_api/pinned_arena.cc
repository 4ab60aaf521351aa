// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The pinned arena through the C ABI.

#include "offload/memory/pinned_arena.h"

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/handles.h"
#include "collectives/c_api/struct_sizes.h"
#include "offload/memory/host_jemalloc.h"

namespace castor::c_api {

struct ArenaEntry {
  Log log;  // to stderr
  std::unique_ptr<PinnedArena> arena;
  std::string allocator;
  mutable std::mutex mutex;
  // Those alive, by address; guarded by mutex.
  std::unordered_map<const void*, PinnedBuffer> buffers;
};

template <>
struct StandsFor<castor_pinned_arena>
    : EntryOf<ArenaEntry, HandleKind::kPinnedArena> {};

namespace {

Status Create(int64_t bytes, castor_pinned_arena** arena) {
  if (arena == nullptr) {
    return InvalidArgument("arena is null; give a place for the handle");
  }
  *arena = nullptr;
  auto made = std::make_unique<ArenaEntry>();
  PinnedArenaOptions options;
  options.budget = Bytes(bytes);
  options.log = &made->log;
  CASTOR_ASSIGN_OR_RETURN(made->arena, MakeHostPinnedArena(options));
  made->allocator = made->arena->stats().allocator;
  *arena = GiveHandle<castor_pinned_arena>(std::move(made));
  return OkStatus();
}

Status Allocate(const castor_pinned_arena* handle, int64_t bytes,
                int64_t alignment, void** data) {
  if (handle == nullptr || data == nullptr) {
    return InvalidArgument("arena or data is null; give both");
  }
  *data = nullptr;
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_pinned_arena> arena,
                          Use<castor_pinned_arena>::Of(handle));
  CASTOR_ASSIGN_OR_RETURN(
      PinnedBuffer buffer,
      arena->arena->Allocate(Bytes(bytes),
                             alignment == 0 ? kPinnedPage : Bytes(alignment)));
  void* const at = buffer.data();
  std::lock_guard lock(arena->mutex);
  arena->buffers.emplace(at, std::move(buffer));
  *data = at;
  return OkStatus();
}

Status Free(const castor_pinned_arena* handle, void* data) {
  if (handle == nullptr) return InvalidArgument("arena is null");
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_pinned_arena> arena,
                          Use<castor_pinned_arena>::Of(handle));
  PinnedBuffer freed;  // after the lock is gone
  std::lock_guard lock(arena->mutex);
  const auto found = arena->buffers.find(data);
  if (found == arena->buffers.end()) {
    return InvalidArgument(fmt::format(
        "{} is no buffer of this arena: it was freed before, or comes from "
        "elsewhere",
        fmt::ptr(data)));
  }
  freed = std::move(found->second);
  arena->buffers.erase(found);
  return OkStatus();
}

Status GetStats(const castor_pinned_arena* handle,
                castor_pinned_arena_stats* given) {
  if (handle == nullptr || given == nullptr) {
    return InvalidArgument("arena or stats is null; give both");
  }
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_pinned_arena> arena,
                          Use<castor_pinned_arena>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  const PinnedArenaStats now = arena->arena->stats();
  castor_pinned_arena_stats stats = {};
  stats.allocator = arena->allocator.c_str();
  stats.locked = now.slab.locked ? 1 : 0;
  stats.bound = now.slab.bound ? 1 : 0;
  stats.budget_bytes = now.budget.count();
  stats.in_use_bytes = now.in_use.count();
  stats.peak_bytes = now.peak.count();
  stats.largest_gap_bytes = now.largest_gap.count();
  stats.requested_bytes = now.requested.count();
  stats.buffers = now.buffers;
  stats.allocated = now.allocated;
  stats.refused = now.refused;
  stats.live_bytes = now.live.count();
  stats.active_bytes = now.active.count();
  stats.resident_bytes = now.resident.count();
  stats.retained_bytes = now.retained.count();
  stats.metadata_bytes = now.metadata.count();
  GiveStruct(stats, given);
  return OkStatus();
}

Status Destroy(const castor_pinned_arena* handle) {
  if (handle == nullptr) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(Claim<castor_pinned_arena> arena,
                          Claim<castor_pinned_arena>::Of(handle));
  {
    std::lock_guard lock(arena->mutex);
    if (!arena->buffers.empty()) {
      return FailedPrecondition(
          fmt::format("{} buffers of the arena are alive; free them first",
                      arena->buffers.size()));
    }
  }
  arena.Delete();
  return OkStatus();
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

int32_t castor_pinned_arena_create(int64_t bytes, castor_pinned_arena** arena) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Create(bytes, arena); });
}

int32_t castor_pinned_arena_allocate(castor_pinned_arena* arena, int64_t bytes,
                                     int64_t alignment, void** data) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Allocate(arena, bytes, alignment, data); });
}

int32_t castor_pinned_arena_free(castor_pinned_arena* arena, void* data) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Free(arena, data); });
}

int32_t castor_pinned_arena_get_stats(const castor_pinned_arena* arena,
                                      castor_pinned_arena_stats* stats) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::GetStats(arena, stats); });
}

int32_t castor_pinned_arena_destroy(castor_pinned_arena* arena) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Destroy(arena); });
}

}  // extern "C"
