// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/range_allocator.h"

#include <algorithm>
#include <bit>

#include "chunk/base/check.h"

namespace castor {
namespace {

constexpr int kSubBits = 4;
constexpr int64_t kSubBins = int64_t{1} << kSubBits;
// Gaps of the piece's own bin that are looked at before a larger one is cut: a
// piece of a size that comes again finds the gap it left.
constexpr int kTries = 8;

bool IsPowerOfTwo(int64_t value) {
  return value > 0 && std::has_single_bit(static_cast<uint64_t>(value));
}

int Log2(int64_t value) {
  return 63 - std::countl_zero(static_cast<uint64_t>(value));
}

// The bin of a gap of `size`.
size_t BinOf(int64_t size) {
  if (size < kSubBins) return static_cast<size_t>(size);
  const int shift = Log2(size) - kSubBits;
  return static_cast<size_t>(kSubBins * shift + (size >> shift));
}

// The first bin in which every gap has `size`.
size_t SafeBinOf(int64_t size) {
  const size_t bin = BinOf(size);
  if (size < kSubBins) return bin;
  const int64_t below = (int64_t{1} << (Log2(size) - kSubBits)) - 1;
  return (size & below) == 0 ? bin : bin + 1;
}

}  // namespace

RangeAllocator::PositionMap::PositionMap() : entries_(16), shift_(60) {}

size_t RangeAllocator::PositionMap::HomeOf(int64_t position) const {
  // Fibonacci hashing: neighbours end far from each other.
  return static_cast<size_t>(
      (static_cast<uint64_t>(position) * 0x9E3779B97F4A7C15u) >> shift_);
}

// Where `position` is, or else the free entry where it would be.
size_t RangeAllocator::PositionMap::SlotOf(int64_t position) const {
  const size_t mask = entries_.size() - 1;
  size_t slot = HomeOf(position);
  while (entries_[slot].gap >= 0 && entries_[slot].position != position) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

int32_t RangeAllocator::PositionMap::Find(int64_t position) const {
  return entries_[SlotOf(position)].gap;
}

void RangeAllocator::PositionMap::Insert(int64_t position, int32_t gap) {
  if (2 * (size_ + 1) > entries_.size()) Grow();
  Entry& entry = entries_[SlotOf(position)];
  CASTOR_CHECK(entry.gap < 0);
  entry = {position, gap};
  ++size_;
}

void RangeAllocator::PositionMap::Erase(int64_t position) {
  const size_t mask = entries_.size() - 1;
  size_t hole = SlotOf(position);
  CASTOR_CHECK(entries_[hole].gap >= 0);
  // Entries behind the hole move up to where a search still finds them.
  for (size_t slot = (hole + 1) & mask; entries_[slot].gap >= 0;
       slot = (slot + 1) & mask) {
    const size_t home = HomeOf(entries_[slot].position);
    if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
    entries_[hole] = entries_[slot];
    hole = slot;
  }
  entries_[hole] = Entry();
  --size_;
}

void RangeAllocator::PositionMap::Grow() {
  std::vector<Entry> old(2 * entries_.size());
  old.swap(entries_);
  --shift_;
  for (const Entry& entry : old) {
    if (entry.gap >= 0) entries_[SlotOf(entry.position)] = entry;
  }
}

RangeAllocator::RangeAllocator(Bytes begin, Bytes size, Bytes granule)
    : granule_(granule), total_(0) {
  CASTOR_CHECK(IsPowerOfTwo(granule.count()));
  CASTOR_CHECK_GE(begin, Bytes(0));
  CASTOR_CHECK_GE(size, Bytes(0));
  CASTOR_CHECK_EQ(begin % granule, Bytes(0));
  CASTOR_CHECK_EQ(size % granule, Bytes(0));
  total_ = size / granule;
  heads_.fill(-1);
  const int64_t first = begin / granule;
  if (total_ > 0) AddGap(first, first + total_);
}

std::optional<Bytes> RangeAllocator::Take(Bytes size, Bytes alignment) {
  CASTOR_CHECK_GT(size, Bytes(0));
  CASTOR_CHECK(IsPowerOfTwo(alignment.count()));
  // What is larger than the range is not rounded: it might overflow.
  if (size > this->size()) return std::nullopt;
  const int64_t wanted = CeilDiv(size, granule_);
  const int64_t align = std::max<int64_t>(1, alignment / granule_);
  const int32_t found = FindGap(wanted, align);
  if (found < 0) return std::nullopt;
  const Gap gap = gaps_[static_cast<size_t>(found)];
  const int64_t begin = (gap.begin + align - 1) & ~(align - 1);
  RemoveGap(found);
  AddGap(gap.begin, begin);
  AddGap(begin + wanted, gap.begin + gap.size);
  used_ += wanted;
  peak_ = std::max(peak_, used_);
  return granule_ * begin;
}

void RangeAllocator::Give(Bytes begin, Bytes size) {
  CASTOR_CHECK_EQ(begin % granule_, Bytes(0));
  int64_t first = begin / granule_;
  int64_t last = first + CeilDiv(size, granule_);
  used_ -= last - first;
  CASTOR_CHECK_GE(used_, int64_t{0});
  CASTOR_CHECK(begins_.Find(first) < 0);  // else it is a gap already
  if (const int32_t before = ends_.Find(first); before >= 0) {
    first = gaps_[static_cast<size_t>(before)].begin;
    RemoveGap(before);
  }
  if (const int32_t after = begins_.Find(last); after >= 0) {
    last += gaps_[static_cast<size_t>(after)].size;
    RemoveGap(after);
  }
  AddGap(first, last);
}

Bytes RangeAllocator::largest_gap() const {
  size_t word = filled_.size();
  while (word > 0 && filled_[word - 1] == 0) --word;
  if (word == 0) return Bytes(0);
  const size_t bin =
      64 * word - 1 - static_cast<size_t>(std::countl_zero(filled_[word - 1]));
  int64_t largest = 0;
  for (int32_t at = heads_[bin]; at >= 0;) {
    const Gap& gap = gaps_[static_cast<size_t>(at)];
    largest = std::max(largest, gap.size);
    at = gap.next;
  }
  return granule_ * largest;
}

Bytes RangeAllocator::bookkeeping() const {
  return Bytes(static_cast<int64_t>(sizeof(*this) + begins_.bytes() +
                                    ends_.bytes() +
                                    gaps_.capacity() * sizeof(Gap)));
}

int32_t RangeAllocator::FindGap(int64_t size, int64_t align) const {
  const auto holds = [&](const Gap& gap) {
    const int64_t begin = (gap.begin + align - 1) & ~(align - 1);
    return begin - gap.begin <= gap.size - size;
  };
  const auto find_in = [&](size_t bin, int tries) {
    int32_t at = heads_[bin];
    for (; at >= 0 && tries > 0; --tries) {
      const Gap& gap = gaps_[static_cast<size_t>(at)];
      if (holds(gap)) return at;
      at = gap.next;
    }
    return int32_t{-1};
  };
  const size_t own = BinOf(size);
  if (const int32_t gap = find_in(own, kTries); gap >= 0) return gap;
  // From here on every gap holds the piece, wherever it begins.
  const size_t safe = std::min(SafeBinOf(size + align - 1), kBins);
  if (const size_t bin = NextFilled(safe); bin < kBins) return heads_[bin];
  for (size_t bin = NextFilled(own); bin < safe; bin = NextFilled(bin + 1)) {
    if (const int32_t gap = find_in(bin, INT32_MAX); gap >= 0) return gap;
  }
  return -1;
}

size_t RangeAllocator::NextFilled(size_t bin) const {
  for (size_t word = bin / 64; word < filled_.size(); ++word) {
    const uint64_t from =
        word == bin / 64 ? ~uint64_t{0} << (bin % 64) : ~uint64_t{0};
    if (const uint64_t bits = filled_[word] & from; bits != 0) {
      return 64 * word + static_cast<size_t>(std::countr_zero(bits));
    }
  }
  return kBins;
}

void RangeAllocator::AddGap(int64_t begin, int64_t end) {
  if (begin == end) return;
  if (unused_ < 0) {
    unused_ = static_cast<int32_t>(gaps_.size());
    gaps_.emplace_back();
  }
  const int32_t at = unused_;
  Gap& gap = gaps_[static_cast<size_t>(at)];
  unused_ = gap.next;
  const size_t bin = BinOf(end - begin);
  gap = {begin, end - begin, -1, heads_[bin]};
  if (gap.next >= 0) gaps_[static_cast<size_t>(gap.next)].previous = at;
  heads_[bin] = at;
  filled_[bin / 64] |= uint64_t{1} << (bin % 64);
  begins_.Insert(begin, at);
  ends_.Insert(end, at);
}

void RangeAllocator::RemoveGap(int32_t at) {
  Gap& gap = gaps_[static_cast<size_t>(at)];
  begins_.Erase(gap.begin);
  ends_.Erase(gap.begin + gap.size);
  const size_t bin = BinOf(gap.size);
  if (gap.next >= 0) {
    gaps_[static_cast<size_t>(gap.next)].previous = gap.previous;
  }
  if (gap.previous >= 0) {
    gaps_[static_cast<size_t>(gap.previous)].next = gap.next;
  } else {
    heads_[bin] = gap.next;
    if (gap.next < 0) filled_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
  }
  gap.next = unused_;
  unused_ = at;
}

}  // namespace castor
