// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/timeline/meetings.h"

#include <algorithm>
#include <cstddef>

namespace castor::internal {
namespace {

// When a rank that came last finds each meeting over.
std::vector<int64_t> Later(const std::vector<int64_t>& a,
                           const std::vector<int64_t>& b) {
  std::vector<int64_t> later = a;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    later[i] = std::max(a[i], b[i]);
  }
  return later;
}

}  // namespace

Status SettleMeetings(const std::function<Status(Meetings*)>& run) {
  Meetings first;
  Meetings last;
  last.comes_last = true;
  for (;;) {
    CASTOR_RETURN_IF_ERROR(run(&last));
    first.other_ns = last.own_ns;
    CASTOR_RETURN_IF_ERROR(run(&first));
    if (Later(last.own_ns, first.own_ns) == Later(last.own_ns, last.other_ns)) {
      return OkStatus();
    }
    last.other_ns = first.own_ns;
  }
}

}  // namespace castor::internal
