// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/pinned_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <optional>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/units_text.h"
#include "offload/memory/range_allocator.h"

namespace castor {
namespace {

// A cache line: two buffers never share one.
constexpr Bytes kGranule(64);

Bytes AddressOf(const std::byte* data) {
  return Bytes(static_cast<int64_t>(reinterpret_cast<uintptr_t>(data)));
}

class OwnArena final : public PinnedArena {
 public:
  OwnArena(Slab slab, HostSlabFacts facts)
      : PinnedArena(std::move(slab), facts),
        range_(AddressOf(this->slab().data()), this->slab().size(), kGranule) {}

 private:
  bool Take(Bytes size, Bytes alignment, PinnedPiece* piece) override {
    if (size > budget()) return false;
    const Bytes rounded =
        RoundUp(size, std::clamp(alignment, kGranule, kPinnedPage));
    std::lock_guard lock(mutex_);
    const std::optional<Bytes> begin = range_.Take(rounded, alignment);
    if (!begin.has_value()) return false;
    *piece = {slab().data() + (*begin - AddressOf(slab().data())).count(),
              rounded, /*shared=*/false};
    return true;
  }

  void Give(const PinnedPiece& piece) override {
    std::lock_guard lock(mutex_);
    range_.Give(AddressOf(piece.data), piece.size);
  }

  void Describe(PinnedArenaStats* stats) const override {
    std::lock_guard lock(mutex_);
    stats->allocator = "castor";
    stats->in_use = range_.in_use();
    stats->peak = range_.peak();
    stats->largest_gap = range_.largest_gap();
    stats->live = range_.in_use();
    stats->active = range_.in_use();
    stats->metadata = range_.bookkeeping();
    stats->resident = stats->active + stats->metadata;
  }

  mutable std::mutex mutex_;
  RangeAllocator range_;  // guarded by mutex_
};

}  // namespace

RunArenaInfo ArenaInfo(int32_t rank, std::string name,
                       const PinnedArenaStats& stats) {
  RunArenaInfo info;
  info.rank = rank;
  info.name = std::move(name);
  info.allocator = stats.allocator;
  info.locked = stats.slab.locked;
  info.bound = stats.slab.bound;
  info.budget_bytes = stats.budget.count();
  info.in_use_bytes = stats.in_use.count();
  info.peak_bytes = stats.peak.count();
  info.requested_bytes = stats.requested.count();
  info.buffers = stats.buffers;
  info.allocated = stats.allocated;
  info.refused = stats.refused;
  info.live_bytes = stats.live.count();
  info.active_bytes = stats.active.count();
  info.resident_bytes = stats.resident.count();
  info.retained_bytes = stats.retained.count();
  info.metadata_bytes = stats.metadata.count();
  return info;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)),
      piece_(std::exchange(other.piece_, PinnedPiece())),
      size_(std::exchange(other.size_, Bytes(0))) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  PinnedBuffer taken(std::move(other));
  std::swap(arena_, taken.arena_);
  std::swap(piece_, taken.piece_);
  std::swap(size_, taken.size_);
  return *this;
}

void PinnedBuffer::Free() {
  if (arena_ == nullptr) return;
  std::exchange(arena_, nullptr)
      ->Free(std::exchange(piece_, PinnedPiece()),
             std::exchange(size_, Bytes(0)));
}

PinnedArena::PinnedArena(Slab slab, HostSlabFacts facts)
    : slab_(std::move(slab)), facts_(facts) {}

PinnedArena::~PinnedArena() { CASTOR_CHECK_EQ(buffers_.load(), int64_t{0}); }

Result<PinnedBuffer> PinnedArena::Allocate(Bytes size, Bytes alignment) {
  if (size <= Bytes(0)) {
    return InvalidArgument(
        fmt::format("a buffer of {} has no meaning; ask for 1 byte or more",
                    FormatBytes(size)));
  }
  if (alignment <= Bytes(0) ||
      !std::has_single_bit(static_cast<uint64_t>(alignment.count()))) {
    return InvalidArgument(fmt::format(
        "an alignment of {} has no meaning; give a power of two, for example "
        "4096 for O_DIRECT",
        FormatBytes(alignment)));
  }
  PinnedBuffer buffer;
  if (!Take(size, alignment, &buffer.piece_)) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return Refusal(size, alignment);
  }
  buffer.arena_ = this;
  buffer.size_ = size;
  requested_.fetch_add(size.count(), std::memory_order_relaxed);
  buffers_.fetch_add(1, std::memory_order_relaxed);
  allocated_.fetch_add(1, std::memory_order_relaxed);
  return buffer;
}

Status PinnedArena::Refusal(Bytes size, Bytes alignment) const {
  const PinnedArenaStats now = stats();
  return TierFull(fmt::format(
      "cannot allocate {} of pinned host memory aligned to {}: of the arena's "
      "{}, {} are in use by {} {}, and the largest gap has {}; free a buffer "
      "first, or make the arena larger",
      FormatBytes(size), alignment.count(), FormatBytes(now.budget),
      FormatBytes(now.in_use), now.buffers,
      now.buffers == 1 ? "buffer" : "buffers", FormatBytes(now.largest_gap)));
}

void PinnedArena::Free(const PinnedPiece& piece, Bytes size) {
  Give(piece);
  requested_.fetch_sub(size.count(), std::memory_order_relaxed);
  buffers_.fetch_sub(1, std::memory_order_release);
}

PinnedArenaStats PinnedArena::stats() const {
  PinnedArenaStats stats;
  stats.slab = facts_;
  stats.budget = budget();
  stats.requested = Bytes(requested_.load(std::memory_order_relaxed));
  stats.buffers = buffers_.load(std::memory_order_relaxed);
  stats.allocated = allocated_.load(std::memory_order_relaxed);
  stats.refused = refused_.load(std::memory_order_relaxed);
  Describe(&stats);
  return stats;
}

Result<Slab> MakeArenaSlab(const PinnedArenaOptions& options,
                           HostSlabFacts* facts) {
  if (options.budget <= Bytes(0) || options.budget % kPinnedPage != Bytes(0)) {
    return InvalidArgument(fmt::format(
        "a pinned arena of {} cannot be made: give a positive multiple of {}",
        FormatBytes(options.budget), FormatBytes(kPinnedPage)));
  }
  HostSlabOptions slab_options;
  slab_options.log = options.log;
  slab_options.keep_from_children = true;
  if (options.make_slab) {
    return options.make_slab(options.budget, slab_options, facts);
  }
  return MakeHostSlab(options.budget, slab_options, facts);
}

Result<std::unique_ptr<PinnedArena>> MakePinnedArena(
    const PinnedArenaOptions& options) {
  HostSlabFacts facts;
  CASTOR_ASSIGN_OR_RETURN(Slab slab, MakeArenaSlab(options, &facts));
  return std::unique_ptr<PinnedArena>(
      std::make_unique<OwnArena>(std::move(slab), facts));
}

}  // namespace castor
