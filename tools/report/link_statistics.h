// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_LINK_STATISTICS_H_
#define CASTOR_TOOLS_REPORT_LINK_STATISTICS_H_

// What went over each link: bytes, how long the link was busy, and when in a
// step. A link is a pair of tiers of one rank, or the wire between ranks, once
// for all-gathers and once for reduce-scatters. Pure functions, thread-safe.

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/tier.h"
#include "offload/record/record_reader.h"
#include "placement/run_event.h"
#include "tools/report/intervals.h"
#include "tools/report/step_windows.h"

namespace castor {

struct LinkId {
  RunEventKind kind = RunEventKind::kTransfer;
  Tier from = Tier::kDevice;  // of a transfer
  Tier to = Tier::kDevice;

  friend bool operator==(const LinkId&, const LinkId&) = default;
};

// Whether the event moved bytes over a link.
bool MovesBytes(const RunEvent& event);
// REQUIRES: MovesBytes(event).
LinkId LinkOf(const RunEvent& event);
// "host -> device", "all-gather", "reduce-scatter".
std::string LinkName(const LinkId& link);

struct LinkStatistics {
  LinkId link;
  int64_t count = 0;
  int64_t bytes = 0;
  std::array<int64_t, kRunCauses> bytes_by_cause = {};
  // Time with at least one move under way, summed over ranks.
  int64_t busy_ns = 0;
  // Of the ranks' time in the steps, how much the link was busy.
  double busy_share = 0;
  // The same for each part of a step.
  std::vector<double> over_step;
  // Bytes that moved before the first or after the last step of the record, in
  // none of the above.
  int64_t outside_bytes = 0;
  std::map<int32_t, IntervalSet> busy;  // by rank

  // Bytes per second of one rank while busy, in 10^9.
  double gigabytes_per_second() const {
    return busy_ns == 0
               ? 0
               : static_cast<double>(bytes) / static_cast<double>(busy_ns);
  }
};

// In a fixed order, only links that were used. `over_step` has `parts` parts.
std::vector<LinkStatistics> ComputeLinkStatistics(
    const RunRecord& record, std::span<const StepWindow> windows,
    const StepRange& steps, int parts);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_LINK_STATISTICS_H_
