// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_RANGE_ALLOCATOR_H_
#define CASTOR_OFFLOAD_MEMORY_RANGE_ALLOCATOR_H_

// Cuts pieces of any size off one range of addresses, and takes them back: the
// two-level segregated fit of Masmano et al. (TLSF, 2004), with all bookkeeping
// outside the range. Gaps of like size share a list, sixteen lists to a power
// of two, and a bitmap finds the first list that has one. Only gaps are
// remembered, so a piece may be given back in parts, or together with its
// neighbours, which is what an allocator that splits and merges extents needs.
// The memory itself is never touched. Thread-compatible. Part of the pinned
// arena (pinned_arena.h).

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "chunk/base/units.h"

namespace castor {

class RangeAllocator {
 public:
  // Of [begin, begin + size); pieces begin and end on multiples of `granule`.
  // REQUIRES: `granule` is a power of two; `begin` and `size` are multiples of
  // it, neither of them negative.
  RangeAllocator(Bytes begin, Bytes size, Bytes granule);

  // Where a piece of `size`, rounded up to the granule, begins, at a multiple
  // of `alignment`; nothing exactly where no gap holds it. Constant time, but
  // where few gaps are large enough, which are then looked at one by one.
  // REQUIRES: size > 0; `alignment` is a power of two.
  std::optional<Bytes> Take(Bytes size, Bytes alignment);

  // The piece, or a part of it, or neighbours at once, are a gap again, in one
  // with the gaps beside them. Constant time. REQUIRES: [begin, begin + size),
  // rounded up to the granule, was taken.
  void Give(Bytes begin, Bytes size);

  Bytes size() const { return granule_ * total_; }
  Bytes in_use() const { return granule_ * used_; }
  Bytes peak() const { return granule_ * peak_; }  // of in_use
  Bytes largest_gap() const;
  int64_t gaps() const { return static_cast<int64_t>(begins_.size()); }
  // Ordinary memory that the bookkeeping takes; as much as the most gaps that
  // there ever were need.
  Bytes bookkeeping() const;

 private:
  // Positions and sizes are in granules from here on.
  struct Gap {
    int64_t begin = 0;
    int64_t size = 0;
    int32_t previous = -1;  // in the list of its bin
    int32_t next = -1;      // there, or among the records not in use
  };

  // Positions to gaps: open addressing, so that nothing is allocated but when
  // it grows.
  class PositionMap {
   public:
    PositionMap();
    int32_t Find(int64_t position) const;  // -1 where there is none
    void Insert(int64_t position, int32_t gap);
    void Erase(int64_t position);
    size_t size() const { return size_; }
    size_t bytes() const { return entries_.size() * sizeof(Entry); }

   private:
    struct Entry {
      int64_t position = -1;
      int32_t gap = -1;
    };
    size_t HomeOf(int64_t position) const;
    size_t SlotOf(int64_t position) const;
    void Grow();

    std::vector<Entry> entries_;  // a power of two of them, at most half used
    int shift_;                   // what is left of a hash indexes entries_
    size_t size_ = 0;
  };

  // Below 16 granules a bin for each size, then 16 to each power of two.
  static constexpr size_t kBins = 960;

  int32_t FindGap(int64_t size, int64_t align) const;
  // The first bin from `bin` on that has a gap, or kBins.
  size_t NextFilled(size_t bin) const;
  void AddGap(int64_t begin, int64_t end);
  void RemoveGap(int32_t gap);

  Bytes granule_;
  int64_t total_;
  int64_t used_ = 0;
  int64_t peak_ = 0;
  std::vector<Gap> gaps_;  // records, in use or not
  int32_t unused_ = -1;    // the first record that is not
  PositionMap begins_;
  PositionMap ends_;
  std::array<int32_t, kBins> heads_;
  std::array<uint64_t, kBins / 64> filled_{};
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_MEMORY_RANGE_ALLOCATOR_H_
