// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_PINNED_ARENA_H_
#define CASTOR_OFFLOAD_MEMORY_PINNED_ARENA_H_

// Pinned host buffers of any size (staging, checkpoints), all of them from one
// slab that is pinned at the start and never grows: an arena that is full says
// so with numbers, and no byte of a buffer ever comes from anywhere else.
//
// There are two kinds. MakePinnedArena below needs no library. Castor's
// executables use MakeJemallocArena (offload/memory/jemalloc_arena.h), and so
// does a process that has jemalloc already; small buffers then share pages.
//
// Thread-safe: buffers are allocated and freed on any thread, and one buffer is
// its owner's. No buffer outlives its arena.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/memory/slab.h"
#include "placement/run_event.h"

namespace castor {

// Pages of the system, and what O_DIRECT asks of addresses and lengths.
inline constexpr Bytes kPinnedPage = KiB(4);

struct PinnedArenaOptions {
  Bytes budget;        // a positive multiple of kPinnedPage
  Log* log = nullptr;  // for what the slab lacks, while it is made
  // Where the slab comes from, for example a device that registers it; what it
  // draws on must outlive the arena. Empty: MakeHostSlab.
  std::function<Result<Slab>(Bytes size, const HostSlabOptions& options,
                             HostSlabFacts* facts)>
      make_slab = nullptr;
};

struct PinnedArenaStats {
  std::string allocator;  // "castor", "jemalloc 5.3.0"
  HostSlabFacts slab;

  // Of the slab.
  Bytes budget;
  Bytes in_use;       // taken from it, the allocator's rounding included
  Bytes peak;         // the most that in_use ever was
  Bytes largest_gap;  // the largest piece that could be taken

  // Of the buffers.
  Bytes requested;        // what those alive were asked for with
  int64_t buffers = 0;    // alive
  int64_t allocated = 0;  // ever
  int64_t refused = 0;    // found no room

  // As the allocator tells them; jemalloc's are of its own statistics for this
  // arena (mallctl), and buffers with an extent of their own are added.
  Bytes live;      // buffers, rounded as the allocator rounds
  Bytes active;    // what holds them: whole pages, with jemalloc
  Bytes resident;  // active, kept for later, and metadata
  Bytes retained;  // kept for later, so that nobody else has it
  Bytes metadata;  // bookkeeping: ordinary memory, outside the budget
};

// What a run's record keeps of an arena that rank `rank` calls `name`.
RunArenaInfo ArenaInfo(int32_t rank, std::string name,
                       const PinnedArenaStats& stats);

class PinnedArena;

// A piece of the slab, as the arena that handed it out knows it.
struct PinnedPiece {
  std::byte* data = nullptr;
  Bytes size;          // that may be used
  bool shared = true;  // for the arena: with others in one extent, or alone
};

// Frees itself. Move-only.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;  // none
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer() { Free(); }

  std::byte* data() const { return piece_.data; }
  Bytes size() const { return size_; }  // as it was asked for
  // At least size(): what may be read and written beyond it, up to a whole page
  // where the buffer is aligned to one, so that O_DIRECT transfers fit.
  Bytes capacity() const { return piece_.size; }
  void Free();

 private:
  friend class PinnedArena;
  PinnedArena* arena_ = nullptr;
  PinnedPiece piece_;
  Bytes size_;
};

class PinnedArena {
 public:
  // CHECKs that no buffer is alive.
  virtual ~PinnedArena();
  PinnedArena(const PinnedArena&) = delete;
  PinnedArena& operator=(const PinnedArena&) = delete;

  // A buffer of `size` at a multiple of `alignment`; what it holds is not said.
  // TierFull, with what is in use and the largest gap, when there is no room.
  // InvalidArgument unless size > 0 and `alignment` is a power of two. Does not
  // wait for another buffer to be freed.
  Result<PinnedBuffer> Allocate(Bytes size, Bytes alignment = kPinnedPage);

  Bytes budget() const { return slab_.size(); }
  PinnedArenaStats stats() const;

 protected:
  PinnedArena(Slab slab, HostSlabFacts facts);
  const Slab& slab() const { return slab_; }

 private:
  friend class PinnedBuffer;

  // False when there is no room. `piece->size` is a multiple of the smaller one
  // of `alignment` and kPinnedPage.
  virtual bool Take(Bytes size, Bytes alignment, PinnedPiece* piece) = 0;
  virtual void Give(const PinnedPiece& piece) = 0;
  // Fills in what the slab's use and the allocator's numbers are.
  virtual void Describe(PinnedArenaStats* stats) const = 0;

  Status Refusal(Bytes size, Bytes alignment) const;
  void Free(const PinnedPiece& piece, Bytes size);

  Slab slab_;
  HostSlabFacts facts_;
  std::atomic<int64_t> requested_{0};
  std::atomic<int64_t> buffers_{0};
  std::atomic<int64_t> allocated_{0};
  std::atomic<int64_t> refused_{0};
};

// The slab of an arena. InvalidArgument where the budget is not one; otherwise
// as MakeHostSlab, or whoever makes it.
Result<Slab> MakeArenaSlab(const PinnedArenaOptions& options,
                           HostSlabFacts* facts);

// Castor's own arena: two-level segregated fit over the whole slab, in
// multiples of 64 bytes. Fails as MakeArenaSlab.
Result<std::unique_ptr<PinnedArena>> MakePinnedArena(
    const PinnedArenaOptions& options);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_MEMORY_PINNED_ARENA_H_
