// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lease_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace castor {

Result<LeaseArena::Lease> LeaseArena::Borrow(Bytes size) {
  const Bytes rounded = RoundUp(size, Bytes(512));
  Bytes begin;
  auto place = held_.begin();
  while (place != held_.end() && place->begin - begin < rounded) {
    begin = place->end;
    ++place;
  }
  if (size_ - begin < rounded) {
    return TierFull(fmt::format(
        "cannot lend {} bytes of device memory: {} of the {} declared at Seal "
        "are on lease; declare a larger lease or return one first",
        rounded.count(), in_use_.count(), size_.count()));
  }
  const Range range{next_id_++, begin, begin + rounded, Event()};
  std::vector<Event> previous;
  std::erase_if(freed_, [&](const Range& freed) {
    if (freed.free_after.done() && freed.free_after.status().ok()) return true;
    if (freed.begin < range.end && range.begin < freed.end) {
      previous.push_back(freed.free_after);
    }
    return false;
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
  freed_.push_back(std::move(*held));
  held_.erase(held);
}

}  // namespace castor
