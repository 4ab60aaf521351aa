// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_RUN_STATISTICS_H_
#define CASTOR_TOOLS_REPORT_RUN_STATISTICS_H_

// All numbers that a report shows, from the events of a run. Rendering is
// elsewhere. Pure function, thread-safe.

#include <cstdint>
#include <optional>
#include <vector>

#include "offload/record/record_reader.h"
#include "placement/run_event.h"
#include "tools/report/link_statistics.h"
#include "tools/report/plan_statistics.h"
#include "tools/report/stall_statistics.h"
#include "tools/report/step_windows.h"
#include "tools/report/tier_statistics.h"

namespace castor {

struct StatisticsOptions {
  StepRange steps;
  int parts = 32;        // of a step, for what is shown over its course
  int worst_chunks = 3;  // per cause of a stall
};

// One step, all ranks.
struct StepStatistics {
  int32_t step = 0;
  bool complete = false;            // every rank's end is in the record
  int64_t ns = 0;                   // of the rank that took longest
  int64_t stalled_ns = 0;           // of the rank that waited longest
  std::vector<int64_t> link_bytes;  // by RunStatistics::links
};

// Over complete steps.
struct Spread {
  int64_t min = 0;
  int64_t median = 0;
  int64_t max = 0;
  int32_t max_step = 0;  // the first with that value
};

struct RankStatistics {
  int32_t rank = 0;
  int64_t step_ns = 0;      // in steps
  int64_t stalled_ns = 0;   // a lane waited, in steps
  int64_t updating_ns = 0;  // the optimizer was at work, in steps or not
  int64_t moving_ns = 0;    // bytes were under way, in steps or not
  int64_t unhidden_ns = 0;  // of it, while a lane waited
};

struct RunStatistics {
  // Of the record.
  int32_t world = 0;
  int32_t stage = -1;  // -1: no rank is described
  int64_t chunks = 0;
  int64_t chunk_bytes = 0;  // of the largest
  int64_t events = 0;
  int64_t dropped = 0;
  int64_t file_bytes = 0;
  std::vector<RunArenaInfo> arenas;  // whatever steps are looked at
  std::optional<PlanStatistics> plan;

  // Of the steps looked at. Those that the record holds, ascending.
  std::vector<StepStatistics> steps;
  int64_t complete_steps = 0;
  Spread step_ns;
  Spread stalled_ns;
  std::vector<Spread> link_bytes;  // of a step; by `links`
  std::vector<RankStatistics> ranks;
  RankStatistics all_ranks;  // their sum; its rank means nothing
  std::vector<TierStatistics> tiers;
  std::vector<LinkStatistics> links;
  std::vector<int64_t>
      link_unhidden_ns;  // by `links`: busy while a lane waited
  std::vector<StallStatistics> stalls;
  int64_t copies = 0;             // times a chunk was made whole on a device
  int64_t prefetched_copies = 0;  // of them, ahead of use
  int64_t divergences = 0;
};

RunStatistics ComputeRunStatistics(const RunRecord& record,
                                   const StatisticsOptions& options);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_RUN_STATISTICS_H_
