// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/store/stripe_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

int64_t SaturatingSum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum)
             ? std::numeric_limits<int64_t>::max()
             : sum;
}

}  // namespace

StripeMap::StripeMap(std::vector<Bytes> sizes, Bytes unit) : unit_(unit) {
  CASTOR_CHECK(!sizes.empty());
  CASTOR_CHECK_GT(unit, Bytes(0));
  for (const Bytes size : sizes) {
    CASTOR_CHECK_GT(size, Bytes(0));
    CASTOR_CHECK(sizes.size() == 1 || size % unit == Bytes(0));
  }
  Bytes done;  // of every drive that is left
  for (;;) {
    Zone zone{.begin = size_, .drive_begin = done, .drives = {}};
    Bytes next(std::numeric_limits<int64_t>::max());
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == done) continue;
      zone.drives.push_back(i);
      next = std::min(next, sizes[i]);
    }
    if (zone.drives.empty()) break;
    size_ += (next - done) * static_cast<int64_t>(zone.drives.size());
    done = next;
    zones_.push_back(std::move(zone));
    // A size that was passed is not to be met again.
    for (Bytes& size : sizes) size = std::max(size, done);
  }
}

StripePlace StripeMap::Place(Bytes offset) const {
  CASTOR_CHECK_GE(offset, Bytes(0));
  CASTOR_CHECK_LT(offset, size_);
  const auto after = std::upper_bound(
      zones_.begin(), zones_.end(), offset,
      [](Bytes wanted, const Zone& zone) { return wanted < zone.begin; });
  const Zone& zone = *(after - 1);
  const Bytes within = offset - zone.begin;
  const int64_t turn = within / unit_;
  const int64_t drives = static_cast<int64_t>(zone.drives.size());
  return {zone.drives[static_cast<size_t>(turn % drives)],
          zone.drive_begin + unit_ * (turn / drives) + within % unit_};
}

Result<std::vector<Bytes>> ShareOverDrives(
    Bytes need, std::span<const std::optional<Bytes>> limits, Bytes unit) {
  CASTOR_CHECK_GT(need, Bytes(0));
  CASTOR_CHECK_GT(unit, Bytes(0));
  CASTOR_CHECK(!limits.empty());
  constexpr Bytes kNoLimit(std::numeric_limits<int64_t>::max());
  if (limits.size() == 1) {
    const Bytes limit = limits[0].value_or(kNoLimit);
    if (need <= limit) return std::vector<Bytes>{need};
    return Infeasible(
        fmt::format("the NVMe tier needs {} B, and its drive is given {} B; "
                    "raise its size",
                    need.count(), limit.count()));
  }
  std::vector<int64_t> most;  // in units
  int64_t all = 0;
  for (const auto& limit : limits) {
    most.push_back(limit.value_or(kNoLimit) / unit);
    all = SaturatingSum(all, most.back());
  }
  int64_t left = (need - Bytes(1)) / unit + 1;
  if (left > all) {
    return Infeasible(fmt::format(
        "the NVMe tier needs {} B, and its {} drives are given {} B in whole "
        "stripes of {} B; raise their sizes, or give it another drive",
        need.count(), limits.size(), (unit * all).count(), unit.count()));
  }
  // The smallest first: what it cannot hold is shared by the others.
  std::vector<size_t> order(most.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(most[a], a) < std::pair(most[b], b);
  });
  std::vector<Bytes> sizes(most.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t drives = static_cast<int64_t>(order.size() - i);
    const int64_t share = std::min(most[order[i]], left / drives);
    sizes[order[i]] = unit * share;
    left -= share;
  }
  CASTOR_CHECK_EQ(left, 0);
  return sizes;
}

}  // namespace castor
