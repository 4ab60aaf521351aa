// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/store/extent_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "chunk/base/check.h"
#include "offload/nvme/store/checksum.h"

namespace castor {
namespace {

std::string Range(Bytes offset, Bytes size) {
  return fmt::format("[{}, {})", offset.count(), (offset + size).count());
}

}  // namespace

ExtentTable::ExtentTable(Bytes unit) : unit_(unit) {
  CASTOR_CHECK_GT(unit, Bytes(0));
}

size_t ExtentTable::PieceIndex(Bytes start, Bytes offset) const {
  return static_cast<size_t>(offset / unit_ - start / unit_);
}

ExtentTable::Extents::const_iterator ExtentTable::Holding(Bytes offset) const {
  auto extent = extents_.upper_bound(offset);
  CASTOR_CHECK(extent != extents_.begin());
  --extent;
  CASTOR_CHECK_GT(extent->first + extent->second.size, offset);
  return extent;
}

ExtentTable::Extents::iterator ExtentTable::FirstAfter(Bytes offset) {
  auto extent = extents_.upper_bound(offset);
  if (extent != extents_.begin()) {
    auto before = std::prev(extent);
    if (before->first + before->second.size > offset) return before;
  }
  return extent;
}

Status ExtentTable::BeginWrite(Bytes offset, Bytes size) {
  CASTOR_CHECK_GT(size, Bytes(0));
  std::lock_guard lock(mutex_);
  const auto first = FirstAfter(offset);
  auto last = first;
  for (; last != extents_.end() && last->first < offset + size; ++last) {
    const Extent& extent = last->second;
    if (extent.state == State::kWriting || extent.readers > 0) {
      return FailedPrecondition(fmt::format(
          "bytes {} cannot be written while {} is being {}: the two transfers "
          "were not ordered by an event",
          Range(offset, size), Range(last->first, extent.size),
          extent.readers > 0 ? "read" : "written"));
    }
  }
  if (first != last && first->first == offset && first->second.size == size) {
    first->second.state = State::kWriting;
    return OkStatus();
  }
  extents_.erase(first, last);
  Extent& extent = extents_[offset];
  extent.size = size;
  return OkStatus();
}

void ExtentTable::SetChecksum(Bytes offset, uint64_t checksum) {
  std::lock_guard lock(mutex_);
  const Bytes start = Holding(offset)->first;
  Extent& extent = extents_.at(start);
  CASTOR_CHECK(extent.state == State::kWriting);
  extent.checksums.resize(PieceIndex(start, start + extent.size - Bytes(1)) +
                          1);
  extent.checksums[PieceIndex(start, offset)] = checksum;
}

void ExtentTable::EndWrite(Bytes offset, bool written) {
  std::lock_guard lock(mutex_);
  const auto found = extents_.find(offset);
  CASTOR_CHECK(found != extents_.end());
  CASTOR_CHECK(found->second.state == State::kWriting);
  found->second.state = written ? State::kWritten : State::kLost;
}

Status ExtentTable::BeginRead(Bytes offset, Bytes size) {
  CASTOR_CHECK_GT(size, Bytes(0));
  const Bytes end = offset + size;
  std::lock_guard lock(mutex_);
  const auto first = FirstAfter(offset);
  Bytes place = offset;
  auto last = first;
  for (; place < end; ++last) {
    if (last == extents_.end() || last->first > place) {
      return DataLoss(fmt::format(
          "nothing was written at offset {} of the range {} to be read, or "
          "only part of what was written there is left",
          place.count(), Range(offset, size)));
    }
    const Extent& extent = last->second;
    const Bytes extent_end = last->first + extent.size;
    if (last->first < place || extent_end > end) {
      return InvalidArgument(fmt::format(
          "bytes {} are part of {}, which was written as a whole and can only "
          "be verified as a whole: read it whole, or write it in parts",
          Range(offset, size), Range(last->first, extent.size)));
    }
    if (extent.state == State::kWriting) {
      return FailedPrecondition(fmt::format(
          "bytes {} cannot be read while {} is being written: the two "
          "transfers were not ordered by an event",
          Range(offset, size), Range(last->first, extent.size)));
    }
    if (extent.state == State::kLost) {
      return DataLoss(fmt::format("the last write of {} failed",
                                  Range(last->first, extent.size)));
    }
    place = extent_end;
  }
  for (auto extent = first; extent != last; ++extent) ++extent->second.readers;
  return OkStatus();
}

Status ExtentTable::Verify(Bytes offset,
                           std::span<const std::byte> piece) const {
  uint64_t expected = 0;
  {
    // A claimed extent does not change; the map around it may.
    std::lock_guard lock(mutex_);
    const auto found = Holding(offset);
    CASTOR_CHECK_GT(found->second.readers, 0);
    CASTOR_CHECK(!found->second.checksums.empty());
    expected = found->second.checksums[PieceIndex(found->first, offset)];
  }
  const uint64_t actual = Checksum(piece);
  if (actual == expected) return OkStatus();
  return DataLoss(fmt::format(
      "bytes {} are not those that were written there (checksum {:016x}, "
      "written {:016x}): the drive lost them or another program wrote to the "
      "file. Look for errors of the drive (dmesg, smartctl -a) and run again "
      "from the last checkpoint",
      Range(offset, Bytes(static_cast<int64_t>(piece.size()))), actual,
      expected));
}

std::vector<ExtentPiece> ExtentTable::Pieces(Bytes offset, Bytes size) const {
  std::vector<ExtentPiece> pieces;
  pieces.reserve(static_cast<size_t>(size / unit_) + 2);
  const Bytes end = offset + size;
  std::lock_guard lock(mutex_);
  for (auto extent = Holding(offset); offset < end; ++extent) {
    CASTOR_CHECK(extent != extents_.end() && extent->first == offset);
    const Bytes extent_end = offset + extent->second.size;
    CASTOR_CHECK_LE(extent_end, end);
    while (offset < extent_end) {
      const Bytes next = std::min(RoundDown(offset, unit_) + unit_, extent_end);
      pieces.push_back({offset, next - offset});
      offset = next;
    }
  }
  return pieces;
}

void ExtentTable::EndRead(Bytes offset, Bytes size) {
  std::lock_guard lock(mutex_);
  for (auto extent = extents_.find(offset);
       extent != extents_.end() && extent->first < offset + size; ++extent) {
    CASTOR_CHECK_GT(extent->second.readers, 0);
    --extent->second.readers;
  }
}

}  // namespace castor
