// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_RESIDENCY_H_
#define CASTOR_TOOLS_REPORT_RESIDENCY_H_

// When which chunk's parameters were whole on the device, or on their way to
// it: from the first transfer or gather into a slot to the release that dropped
// the copy. Chunks whose home is the device are there always and not meant
// here. Pure function, thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "placement/run_event.h"
#include "tools/report/intervals.h"

namespace castor {

struct Residency {
  int32_t rank = 0;
  int32_t chunk = 0;
  int32_t step = 0;  // for which it came
  Interval time;
  RunCause fetched = RunCause::kNone;  // why it came
  RunCause released =
      RunCause::kNone;  // why it went; kNone: it was still there
};

// By rank, chunk and time. Those of one chunk on one rank do not overlap, even
// where a release is missing: then the next fetch ends it, or the last event.
std::vector<Residency> FindResidencies(std::span<const RunEvent> events);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_RESIDENCY_H_
