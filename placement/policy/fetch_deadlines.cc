// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/fetch_deadlines.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace castor::internal {
namespace {

struct Served {
  int64_t asked_ns = 0;   // the moment before it has computed
  int64_t served_ns = 0;  // and its fetch is over
};

// By moment, where every fetch begins as early as it may.
std::vector<Served> ServeEarliest(std::span<const DatedFetch> fetches,
                                  std::span<const int64_t> compute_ns) {
  std::vector<Served> times(compute_ns.size());
  FetchLegs free_ns{};
  size_t next = 0;
  int64_t now_ns = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    times[i] = {now_ns, now_ns};
    if (next < fetches.size() && fetches[next].use == static_cast<int64_t>(i)) {
      const DatedFetch& fetch = fetches[next++];
      // Of its use itself: when it is asked for.
      int64_t at_ns =
          fetch.earliest < 0
              ? 0
              : times[static_cast<size_t>(fetch.earliest)].served_ns;
      for (size_t leg = 0; leg < kFetchLegs; ++leg) {
        // A leg that the fetch does not pass holds nobody up.
        if (fetch.ns[leg] == 0) continue;
        at_ns = std::max(at_ns, free_ns[leg]) + fetch.ns[leg];
        free_ns[leg] = at_ns;
      }
      times[i].served_ns = std::max(now_ns, at_ns);
    }
    now_ns = times[i].served_ns + compute_ns[i];
  }
  return times;
}

}  // namespace

std::vector<int64_t> LatestBegins(std::span<const DatedFetch> fetches,
                                  std::span<const int64_t> compute_ns,
                                  int64_t lead) {
  const std::vector<Served> times = ServeEarliest(fetches, compute_ns);
  std::vector<int64_t> begins(fetches.size());
  FetchLegs last_ns;  // to begin on each leg, of the fetches that follow
  last_ns.fill(std::numeric_limits<int64_t>::max());
  int64_t next_begin = std::numeric_limits<int64_t>::max();
  for (size_t j = fetches.size(); j-- > 0;) {
    const DatedFetch& fetch = fetches[j];
    const auto use = static_cast<size_t>(fetch.use);
    int64_t begin_ns = times[use].served_ns;
    for (size_t leg = kFetchLegs; leg-- > 0;) {
      if (fetch.ns[leg] == 0) continue;
      // Before the step is before the step, however long.
      begin_ns = std::max<int64_t>(
          std::min(begin_ns, last_ns[leg]) - lead * fetch.ns[leg], -1);
      last_ns[leg] = begin_ns;
    }
    int64_t begin = fetch.use;
    if (fetch.earliest < fetch.use &&
        (use == 0 || times[use].asked_ns > begin_ns)) {
      // The last moment before the use that comes no later.
      const auto after = std::upper_bound(
          times.begin(), times.begin() + fetch.use, begin_ns,
          [](int64_t ns, const Served& time) { return ns < time.served_ns; });
      begin = std::max<int64_t>(after - times.begin() - 1, fetch.earliest);
    }
    next_begin = begins[j] = std::min(begin, next_begin);
  }
  return begins;
}

}  // namespace castor::internal
