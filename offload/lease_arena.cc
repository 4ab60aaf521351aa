// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lease_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/units_text.h"

namespace castor {
namespace {

bool DoneAndOk(const Event& event) {
  return event.done() && event.status().ok();
}

}  // namespace

Result<LeaseArena::Gap> LeaseArena::Find(Bytes size) const {
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
        "cannot lend {} of device memory: of the {} declared at Seal, {} are "
        "on lease and the largest gap between them has {}; declare a larger "
        "lease at Seal or return one first",
        FormatBytes(rounded), FormatBytes(size_), FormatBytes(in_use_),
        FormatBytes(std::max(largest_gap, size_ - begin))));
  }
  return Gap{static_cast<size_t>(place - held_.begin()), begin,
             begin + rounded};
}

Result<LeaseArena::Lease> LeaseArena::Borrow(Bytes size) {
  CASTOR_ASSIGN_OR_RETURN(const Gap gap, Find(size));
  const int32_t id = next_id_;
  next_id_ = id == std::numeric_limits<int32_t>::max() ? 0 : id + 1;
  Event free_after = Use(gap.begin, gap.end);
  held_.insert(held_.begin() + static_cast<std::ptrdiff_t>(gap.before),
               {id, gap.begin, gap.end, Event()});
  in_use_ += gap.end - gap.begin;
  return Lease{id, data_ + gap.begin.count(), std::move(free_after)};
}

Result<Bytes> LeaseArena::EndOf(Bytes size) const {
  CASTOR_ASSIGN_OR_RETURN(const Gap gap, Find(size));
  return gap.end;
}

Event LeaseArena::Use(Bytes begin, Bytes end) {
  std::vector<Event> previous;
  std::erase_if(freed_, [&](const Range& freed) {
    if (DoneAndOk(freed.free_after)) return true;
    if (freed.end <= begin || end <= freed.begin) return false;
    previous.push_back(freed.free_after);
    // In use again as a whole, it is free again when the new user is done.
    return begin <= freed.begin && freed.end <= end;
  });
  return AllOf(previous);
}

void LeaseArena::Leave(Bytes begin, Bytes end, Event free_after) {
  if (begin == end || DoneAndOk(free_after)) return;
  freed_.push_back({-1, begin, end, std::move(free_after)});
}

void LeaseArena::Return(int32_t id, Event free_after) {
  const auto held = std::find_if(held_.begin(), held_.end(),
                                 [&](const Range& r) { return r.id == id; });
  CASTOR_CHECK(held != held_.end());
  in_use_ -= held->end - held->begin;
  Leave(held->begin, held->end, std::move(free_after));
  held_.erase(held);
}

}  // namespace castor
