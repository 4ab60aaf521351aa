// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/jemalloc_arena.h"

#include <fmt/format.h>
#include <jemalloc/jemalloc.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/units.h"
#include "offload/memory/range_allocator.h"

namespace castor {
namespace {

// Smaller buffers share the pages of an extent; jemalloc's classes for them are
// close enough.
constexpr Bytes kLargeFrom = KiB(16);
// No extent that small buffers share is larger.
constexpr Bytes kLargestShared = KiB(64);

// The largest extent that the call under way on this thread needs. jemalloc
// would like to grow in leaps of megabytes and keep what it does not need; what
// it asks for beyond this it is refused, and then asks for what it needs. Also
// refuses what is not asked for on behalf of Allocate.
thread_local size_t t_largest_extent = 0;

class ExtentLimit {
 public:
  explicit ExtentLimit(Bytes largest) {
    t_largest_extent = static_cast<size_t>(largest.count());
  }
  ~ExtentLimit() { t_largest_extent = 0; }
  ExtentLimit(const ExtentLimit&) = delete;
  ExtentLimit& operator=(const ExtentLimit&) = delete;
};

Bytes AddressOf(const void* data) {
  return Bytes(static_cast<int64_t>(reinterpret_cast<uintptr_t>(data)));
}
Bytes FromSize(size_t size) { return Bytes(static_cast<int64_t>(size)); }
size_t ToSize(Bytes size) { return static_cast<size_t>(size.count()); }

// The pages of the slab. Thread-safe: jemalloc's hooks call it, holding locks
// of jemalloc's, so it calls nobody.
class Extents {
 public:
  explicit Extents(const Slab& slab)
      : begin_(slab.data()),
        range_(AddressOf(slab.data()), slab.size(), kPinnedPage) {}

  // Null when there is no room.
  std::byte* Take(Bytes size, Bytes alignment) {
    std::lock_guard lock(mutex_);
    const std::optional<Bytes> begin = range_.Take(size, alignment);
    if (!begin.has_value()) return nullptr;
    return begin_ + (*begin - AddressOf(begin_)).count();
  }
  void Give(const void* data, Bytes size) {
    std::lock_guard lock(mutex_);
    range_.Give(AddressOf(data), size);
  }
  void Describe(PinnedArenaStats* stats) const {
    std::lock_guard lock(mutex_);
    stats->in_use = range_.in_use();
    stats->peak = range_.peak();
    stats->largest_gap = range_.largest_gap();
    stats->metadata = range_.bookkeeping();
  }

 private:
  std::byte* const begin_;
  mutable std::mutex mutex_;
  RangeAllocator range_;  // guarded by mutex_
};

// jemalloc hands its hooks their own table, which therefore carries the state.
struct Hooks : extent_hooks_t {
  Extents* extents;
};

Extents& ExtentsOf(extent_hooks_t* hooks) {
  return *static_cast<Hooks*>(hooks)->extents;
}

void* AllocHook(extent_hooks_t* hooks, void* wanted_address, size_t size,
                size_t alignment, bool* zero, bool* commit, unsigned) noexcept {
  if (wanted_address != nullptr || size > t_largest_extent) return nullptr;
  std::byte* data = ExtentsOf(hooks).Take(FromSize(size), FromSize(alignment));
  if (data == nullptr) return nullptr;
  if (*zero) std::memset(data, 0, size);
  *commit = true;
  return data;
}

// False says that the extent is ours again. jemalloc calls this for whatever it
// has no use for, in parts or merged with neighbours.
bool DallocHook(extent_hooks_t* hooks, void* data, size_t size, bool,
                unsigned) noexcept {
  ExtentsOf(hooks).Give(data, FromSize(size));
  return false;
}

void DestroyHook(extent_hooks_t* hooks, void* data, size_t size, bool,
                 unsigned) noexcept {
  ExtentsOf(hooks).Give(data, FromSize(size));
}

// The slab is committed as long as it lives, and it must not be purged or
// decommitted: its pages are locked and known to devices by their address. True
// is a refusal.
bool CommitHook(extent_hooks_t*, void*, size_t, size_t, size_t,
                unsigned) noexcept {
  return false;
}
bool RefusePages(extent_hooks_t*, void*, size_t, size_t, size_t,
                 unsigned) noexcept {
  return true;
}

// Any border between pages will do: only gaps are remembered.
bool SplitHook(extent_hooks_t*, void*, size_t, size_t, size_t, bool,
               unsigned) noexcept {
  return false;
}
bool MergeHook(extent_hooks_t*, void*, size_t, void*, size_t, bool,
               unsigned) noexcept {
  return false;
}

class JemallocArena final : public PinnedArena {
 public:
  JemallocArena(const JemallocApi& api, Slab slab, HostSlabFacts facts)
      : PinnedArena(std::move(slab), facts), api_(api), extents_(this->slab()) {
    hooks_.alloc = &AllocHook;
    hooks_.dalloc = &DallocHook;
    hooks_.destroy = &DestroyHook;
    hooks_.commit = &CommitHook;
    hooks_.decommit = &RefusePages;
    hooks_.purge_lazy = &RefusePages;
    hooks_.purge_forced = &RefusePages;
    hooks_.split = &SplitHook;
    hooks_.merge = &MergeHook;
    hooks_.extents = &extents_;
  }

  ~JemallocArena() override {
    if (made_) Set("destroy");
  }

  Status Make() {
    // Made with jemalloc's default hooks, so that its bookkeeping, which comes
    // in megabytes, is taken from ordinary memory; an arena that is still empty
    // may change hooks.
    size_t size = sizeof(index_);
    if (const int error =
            api_.mallctl("arenas.create", &index_, &size, nullptr, 0)) {
      return Refused("arenas.create", error);
    }
    made_ = true;
    const char* version = "";
    size = sizeof(version);
    api_.mallctl("version", &version, &size, nullptr, 0);
    const std::string_view whole(version);
    name_ = fmt::format("jemalloc {}", whole.substr(0, whole.find('-')));
    // Where jemalloc shifts large buffers against each other in the cache, each
    // has a page more than it was asked for; early versions always do.
    bool shifts = true;
    size = sizeof(shifts);
    api_.mallctl("opt.cache_oblivious", &shifts, &size, nullptr, 0);
    exact_ = !shifts;
    extent_hooks_t* hooks = &hooks_;
    const ssize_t at_once = 0;
    for (const int error : {Set("extent_hooks", &hooks, sizeof(hooks)),
                            Set("dirty_decay_ms", &at_once, sizeof(at_once)),
                            Set("muzzy_decay_ms", &at_once, sizeof(at_once))}) {
      if (error != 0) return Refused("an arena's hooks or decay", error);
    }
    return OkStatus();
  }

 private:
  bool Take(Bytes size, Bytes alignment, PinnedPiece* piece) override {
    if (size > budget() || alignment > budget()) return false;
    if (TryTake(size, alignment, piece)) return true;
    // What another thread is freeing is on its way back to the slab; this waits
    // for it.
    Set("purge");
    return TryTake(size, alignment, piece);
  }

  bool TryTake(Bytes size, Bytes alignment, PinnedPiece* piece) {
    const Bytes pages = RoundUp(size, kPinnedPage);
    const int flags = Flags(alignment);
    const Bytes usable = FromSize(api_.nallocx(ToSize(size), flags));
    const bool fits = usable < kLargeFrom || (exact_ && usable == pages);
    if (usable > Bytes(0) && fits) {
      const ExtentLimit limit(std::max(usable, kLargestShared));
      if (void* data = api_.mallocx(ToSize(size), flags)) {
        *piece = {static_cast<std::byte*>(data), usable, /*shared=*/true};
        return true;
      }
    }
    std::byte* data = extents_.Take(pages, std::max(alignment, kPinnedPage));
    if (data == nullptr) return false;
    whole_.fetch_add(pages.count(), std::memory_order_relaxed);
    *piece = {data, pages, /*shared=*/false};
    return true;
  }

  void Give(const PinnedPiece& piece) override {
    if (piece.shared) {
      api_.dallocx(piece.data, Flags(Bytes(1)));
    } else {
      whole_.fetch_sub(piece.size.count(), std::memory_order_relaxed);
      extents_.Give(piece.data, piece.size);
    }
  }

  void Describe(PinnedArenaStats* stats) const override {
    stats->allocator = name_;
    extents_.Describe(stats);
    const Bytes whole(whole_.load(std::memory_order_relaxed));
    uint64_t epoch = 1;
    api_.mallctl("epoch", nullptr, nullptr, &epoch, sizeof(epoch));
    stats->live = Stat("small.allocated") + Stat("large.allocated") + whole;
    stats->active = kPinnedPage * Stat("pactive").count() + whole;
    stats->retained = Stat("retained");
    stats->resident = Stat("resident") + whole + stats->metadata;
    stats->metadata += Stat("base") + Stat("internal");
  }

  int Flags(Bytes alignment) const {
    const int log = std::countr_zero(static_cast<uint64_t>(alignment.count()));
    return MALLOCX_LG_ALIGN(log) | MALLOCX_ARENA(index_) | MALLOCX_TCACHE_NONE;
  }

  // Of this arena; 0 where jemalloc was built without statistics.
  Bytes Stat(std::string_view name) const {
    size_t value = 0;
    size_t size = sizeof(value);
    const std::string path = fmt::format("stats.arenas.{}.{}", index_, name);
    api_.mallctl(path.c_str(), &value, &size, nullptr, 0);
    return FromSize(value);
  }

  int Set(std::string_view name, const void* value = nullptr, size_t size = 0) {
    const std::string path = fmt::format("arena.{}.{}", index_, name);
    return api_.mallctl(path.c_str(), nullptr, nullptr,
                        const_cast<void*>(value), size);
  }

  Status Refused(std::string_view what, int error) const {
    return Unavailable(fmt::format(
        "jemalloc refuses {}: {}; use fewer pinned arenas, or a process whose "
        "malloc is not jemalloc",
        what, std::strerror(error)));
  }

  const JemallocApi api_;
  Extents extents_;
  Hooks hooks_{};
  unsigned index_ = 0;
  bool made_ = false;
  bool exact_ = false;  // jemalloc gives large buffers no page too many
  std::string name_;
  std::atomic<int64_t> whole_{0};  // bytes of buffers with extents of their own
};

}  // namespace

Result<std::unique_ptr<PinnedArena>> MakeJemallocArena(
    const JemallocApi& api, const PinnedArenaOptions& options) {
  HostSlabFacts facts;
  CASTOR_ASSIGN_OR_RETURN(Slab slab, MakeArenaSlab(options, &facts));
  auto arena = std::make_unique<JemallocArena>(api, std::move(slab), facts);
  CASTOR_RETURN_IF_ERROR(arena->Make());
  return std::unique_ptr<PinnedArena>(std::move(arena));
}

}  // namespace castor
