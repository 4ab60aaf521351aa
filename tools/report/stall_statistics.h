// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_STALL_STATISTICS_H_
#define CASTOR_TOOLS_REPORT_STALL_STATISTICS_H_

// Who waited for what: the time compute lanes stood still, by cause, with the
// chunks that were waited for and the link that was at work meanwhile. Pure
// functions, thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "offload/record/record_reader.h"
#include "placement/run_event.h"
#include "tools/report/link_statistics.h"
#include "tools/report/step_windows.h"

namespace castor {

struct ChunkStall {
  int32_t chunk = -1;
  std::string params;  // names, where the record has them
  int64_t ns = 0;
  int64_t count = 0;
};

struct StallStatistics {
  RunCause cause = RunCause::kNone;
  int64_t count = 0;
  int64_t ns = 0;                 // with a lane waiting, summed over ranks
  int64_t first_step_ns = 0;      // of it, in step 1, which records the trace
  std::vector<ChunkStall> worst;  // longest first
  // The link that was busy for the longest part of `ns`, and for how much.
  std::optional<LinkId> busiest;
  double busiest_share = 0;
};

// Longest first. At most `worst_chunks` chunks each.
std::vector<StallStatistics> ComputeStallStatistics(
    const RunRecord& record, std::span<const LinkStatistics> links,
    const StepRange& steps, int worst_chunks);

// What to try against these stalls, in a sentence, from what the record shows;
// empty where it shows nothing that helps.
std::string StallHint(const StallStatistics& stall, int64_t divergences,
                      int32_t last_step);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_STALL_STATISTICS_H_
