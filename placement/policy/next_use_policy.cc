// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/next_use_policy.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "placement/policy/fetch_schedule.h"
#include "placement/policy/slot_replay.h"
#include "placement/policy/trace_pins.h"

namespace castor {
namespace {

// A step whose end state is its start state is usually found at once; a plan is
// valid without it, so the search for one is short.
constexpr int kMaxPasses = 4;

}  // namespace

std::vector<int64_t> PinnedPeaks(const Trace& trace,
                                 const PlanProblem& problem) {
  const internal::PinnedCounts counts(trace, problem);
  std::vector<int64_t> peaks;
  for (size_t c = 0; c < problem.slots.size(); ++c) {
    peaks.push_back(counts.peak(c));
  }
  return peaks;
}

Result<Plan> PlanNextUse(const Trace& trace, const PlanProblem& problem) {
  CASTOR_RETURN_IF_ERROR(internal::CheckTrace(trace, problem));
  CASTOR_RETURN_IF_ERROR(internal::CheckFits(
      trace, problem, internal::PinnedCounts(trace, problem)));
  internal::SlotReplay replay(trace, problem,
                              [&](ChunkId chunk, int64_t next_use) {
                                return next_use == internal::kNeverUsed
                                           ? 0
                                           : problem.fetch_cost[chunk.index()];
                              });
  std::vector<ChunkId> kept;
  Plan plan;
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    internal::ServedTrace served = replay.Run(kept);
    plan = internal::ScheduleFetches(trace, problem, kept, served);
    if (served.survivors == kept) break;
    kept = std::move(served.survivors);
  }
  return plan;
}

ChunkId FirstStepVictim(std::span<const ChunkId> candidates, ChunkId current,
                        bool forward) {
  CASTOR_CHECK(!candidates.empty());
  ChunkId best;
  int64_t best_distance = -1;
  for (ChunkId candidate : candidates) {
    // Going forward, a chunk behind comes back in the backward sweep, the
    // furthest behind last; going backward, a chunk above comes back in the
    // next step, the nearest above last of the forward sweep.
    const int64_t gap = int64_t{candidate.value()} - current.value();
    constexpr int64_t kSweep = int64_t{1} << 32;
    const int64_t distance = forward ? (gap > 0 ? gap : kSweep - gap)
                                     : (gap < 0 ? -gap : kSweep + gap);
    if (distance > best_distance ||
        (distance == best_distance && candidate < best)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace castor
