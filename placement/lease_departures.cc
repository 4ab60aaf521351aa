// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/lease_departures.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "chunk/base/check.h"

namespace castor {

namespace {

void Lower(std::vector<int64_t>& places, const std::vector<int64_t>& to) {
  for (size_t moment = 0; moment < places.size(); ++moment) {
    places[moment] = std::min(places[moment], to[moment]);
  }
}

}  // namespace

void LeaseDepartures::Adopt(std::span<const int64_t> lent,
                            std::vector<int64_t> own, bool accesses_departed) {
  CASTOR_CHECK_EQ(lent.size(), own.size());
  lent_.assign(lent.begin(), lent.end());
  own_ = std::move(own);
  left_ = least_ = own_;
  steps_with_more_ = 0;
  if (accesses_departed) patience_ = 1;
}

LeaseDepartures::Departure LeaseDepartures::After(
    std::span<const LeaseChange> leases) {
  bool fewer = false;
  bool more = false;
  Bytes reach;
  auto change = leases.begin();
  for (size_t moment = 0; moment < lent_.size(); ++moment) {
    while (change != leases.end() &&
           static_cast<size_t>(change->moment) == moment) {
      reach = change++->level().reach;
    }
    left_[moment] = std::max(arena_ - reach, Bytes(0)) / place_;
    fewer |= left_[moment] < lent_[moment];
    more |= left_[moment] > own_[moment];
  }
  if (fewer || !more) steps_with_more_ = 0;
  if (fewer) {
    Lower(own_, left_);
    return Departure::kFewer;
  }
  if (!more) return Departure::kNone;
  if (steps_with_more_++ == 0) {
    least_ = left_;
  } else {
    Lower(least_, left_);
  }
  if (steps_with_more_ < patience_) return Departure::kNone;
  patience_ = std::min(2 * patience_, kMostPatience);
  steps_with_more_ = 0;
  // Steps that left more, each at another moment, left no more together.
  if (std::equal(own_.begin(), own_.end(), least_.begin(),
                 std::greater_equal<int64_t>())) {
    return Departure::kNone;
  }
  own_ = least_;
  return Departure::kMore;
}

}  // namespace castor
