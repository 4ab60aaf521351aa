// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/lease_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/units_text.h"

namespace castor {
namespace {

bool DoneAndOk(const Event& event) {
  return event.done() && event.status().ok();
}

}  // namespace

Result<LeaseArena::Lease> LeaseArena::Borrow(Bytes size) {
  if (size < Bytes(0)) {
    return InvalidArgument(
        fmt::format("a lease of {} has no meaning", FormatBytes(size)));
  }
  // What is larger than the arena is not rounded: it might overflow.
  const Bytes rounded = size > size_ ? size : RoundUp(size, Bytes(512));
  Bytes begin;
  Bytes largest_gap;
  auto place = held_.begin();
  while (place != held_.end() && place->begin - begin < rounded) {
    largest_gap = std::max(largest_gap, place->begin - begin);
    begin = place->end;
    ++place;
  }
  if (size_ - begin < rounded) {
    return TierFull(fmt::format(
        "cannot lend {} of device memory: of the {} declared at Seal(), {} are "
        "on lease and the largest gap between them has {}; declare a larger "
        "lease at Seal() or return one first",
        FormatBytes(rounded), FormatBytes(size_), FormatBytes(in_use_),
        FormatBytes(std::max(largest_gap, size_ - begin))));
  }
  const Range range{next_id_, begin, begin + rounded, Event()};
  next_id_ = next_id_ == std::numeric_limits<int32_t>::max() ? 0 : next_id_ + 1;
  std::vector<Event> previous;
  std::erase_if(freed_, [&](const Range& freed) {
    if (DoneAndOk(freed.free_after)) return true;
    if (freed.end <= range.begin || range.end <= freed.begin) return false;
    previous.push_back(freed.free_after);
    // Lent again as a whole, it is free again when the new lease is.
    return range.begin <= freed.begin && freed.end <= range.end;
  });
  held_.insert(place, range);
  in_use_ += rounded;
  return Lease{range.id, data_ + range.begin.count(), AllOf(previous)};
}

void LeaseArena::Return(int32_t id, Event free_after) {
  const auto held = std::find_if(held_.begin(), held_.end(),
                                 [&](const Range& r) { return r.id == id; });
  CASTOR_CHECK(held != held_.end());
  in_use_ -= held->end - held->begin;
  held->free_after = std::move(free_after);
  if (held->begin < held->end && !DoneAndOk(held->free_after)) {
    freed_.push_back(std::move(*held));
  }
  held_.erase(held);
}

const LeaseArena::Range& LeaseArena::Held(int32_t id) const {
  const auto held = std::find_if(held_.begin(), held_.end(),
                                 [&](const Range& r) { return r.id == id; });
  CASTOR_CHECK(held != held_.end());
  return *held;
}

Bytes LeaseArena::SizeOf(int32_t id) const {
  return Held(id).end - Held(id).begin;
}

std::byte* LeaseArena::DataOf(int32_t id) const {
  return data_ + Held(id).begin.count();
}

}  // namespace castor
