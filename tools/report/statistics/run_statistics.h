// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_STATISTICS_RUN_STATISTICS_H_
#define CASTOR_TOOLS_REPORT_STATISTICS_RUN_STATISTICS_H_

// All numbers that are known of a recorded run: what went over each link, who
// waited for what, how full tiers were, what its plan says of its slots, and
// all of it together. How they are shown is elsewhere. Pure functions,
// thread-safe.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/tier.h"
#include "offload/record/record_reader.h"
#include "placement/run_event.h"
#include "tools/report/statistics/intervals.h"
#include "tools/report/statistics/run_times.h"

namespace castor {

// --- Links ------------------------------------------------------------------
// A pair of tiers of one rank, or the wire between ranks, once for all-gathers
// and once for reduce-scatters.
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

// --- Stalls -----------------------------------------------------------------
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

// "chunks fetched when asked for", ...: for people.
std::string_view WaitTitle(RunCause cause);

// What explains these stalls, and with `relief` what may help, in a sentence,
// from what the record shows; empty where it shows nothing.
std::string StallHint(const StallStatistics& stall, int64_t divergences,
                      int32_t last_step, bool relief = true);

// --- Tiers ------------------------------------------------------------------
struct TierStatistics {
  Tier tier = Tier::kDevice;
  int64_t peak_bytes = 0;  // of the rank that used most
  int32_t peak_rank = -1;
  int32_t peak_step = 0;
  int64_t budget_bytes = 0;  // of that rank; 0: none given
  // Mean bytes of a rank in each part of a step, over ranks and steps.
  std::vector<double> over_step;
};

// The tiers that the record speaks of. Peaks are those of `steps`, or of the
// whole record, what comes before the first step included, if that is all of
// them. `over_step` has `parts` parts.
std::vector<TierStatistics> ComputeTierStatistics(
    const RunRecord& record, std::span<const StepWindow> windows,
    const StepRange& steps, int parts);

// --- The plan ---------------------------------------------------------------
// Slots of one size. Costs are of one step, in the plan's unit.
struct SlotWorth {
  int64_t slot_bytes = 0;
  int64_t slots = 0;
  int64_t shard_slots = 0;  // of these, those that hold copies of shards
  int64_t shards = 0;       // that they hold at most
  double cost = 0;
  double lower_bound = 0;
  bool optimal = false;
  // Of one more slot at every moment, and one less: the sum of the prices of a
  // slot, from which the true value is no further than plan and bound are from
  // each other. Empty where the record has no prices.
  std::optional<double> one_more_saves;  // at most
  std::optional<double> one_less_costs;  // at least
  // The first moments at which a slot is dearest, both included; -1: it is
  // never worth anything.
  int32_t dearest_first = -1;
  int32_t dearest_last = -1;
};

struct PlanStatistics {
  int32_t step = 0;         // after which it was made
  bool in_seconds = false;  // else in links that fetches cross
  int32_t moments = 0;      // of the step it is for
  std::vector<SlotWorth> slots;
};

PlanStatistics StatisticsOfPlan(const RunPlanInfo& plan);

// Of the lowest rank's last plan; all ranks' are alike. Empty where the record
// has none: the policy proves nothing.
std::optional<PlanStatistics> ComputePlanStatistics(const RunRecord& record);

// --- The run ----------------------------------------------------------------
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
  int64_t between_ns = 0;   // from the end of one to the next one's first call
  int64_t stalled_ns = 0;   // a lane waited, in steps
  int64_t updating_ns = 0;  // the optimizer was at work, in steps or not
  int64_t moving_ns = 0;    // bytes were under way, in steps or not
  int64_t unhidden_ns = 0;  // of it, while a lane waited
};

struct RunStatistics {
  // Of the record.
  int32_t world = 0;
  int32_t stage = -1;      // -1: no rank is described
  StateNames states = {};  // of the lowest rank
  int64_t chunks = 0;
  int64_t chunk_bytes = 0;  // of the largest
  int64_t events = 0;
  int64_t dropped = 0;
  int64_t file_bytes = 0;
  std::vector<RunArenaInfo> arenas;  // whatever steps are looked at
  std::optional<PlanStatistics> plan;
  // Of the lowest rank, in order: where states were at home, and when that
  // changed. Others differ by the sizes of their shards.
  std::vector<RunHomesInfo> homes;

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
  // Chunks that were updated before the norm was known, each as often as in a
  // step; of these, those that the step updated again, as the guess was wrong.
  int64_t guesses = 0;
  int64_t wrong_guesses = 0;
  int64_t wrong_ns = 0;  // that such updates took, summed
  std::vector<RunMark>
      marks;  // in order of time; 0 is the record's first event
};

RunStatistics ComputeRunStatistics(const RunRecord& record,
                                   const StepRange& steps);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_STATISTICS_RUN_STATISTICS_H_
