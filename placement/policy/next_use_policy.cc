// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/next_use_policy.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "placement/policy/fetch_forecast.h"
#include "placement/policy/fetch_schedule.h"
#include "placement/policy/plan_cost.h"
#include "placement/policy/slot_replay.h"
#include "placement/policy/spare_slots.h"
#include "placement/policy/trace_pins.h"

namespace castor {
namespace {

// A step whose end state is its start state is usually found at once; a plan is
// valid without it, so the search for one is short.
constexpr int kMaxPasses = 4;

std::vector<ChunkId> Sorted(std::vector<ChunkId> some,
                            const std::vector<ChunkId>& others) {
  some.insert(some.end(), others.begin(), others.end());
  std::sort(some.begin(), some.end());
  return some;
}

double CostOf(const PlanProblem& problem, const Plan& plan) {
  const std::vector<double> costs = StepFetchCosts(problem, plan);
  return std::accumulate(costs.begin(), costs.end(), 0.0);
}

// `spare`, by class: slots for fetching ahead alone.
Plan PlanWith(const std::vector<int64_t>& spare, const Trace& trace,
              const PlanProblem& problem) {
  PlanProblem fewer = problem;
  for (size_t c = 0; c < spare.size(); ++c) fewer.slots[c] -= spare[c];
  internal::SlotReplay replay(trace, fewer,
                              [&](ChunkId chunk, int64_t next_use) {
                                return next_use == internal::kNeverUsed
                                           ? 0
                                           : problem.fetch_cost[chunk.index()];
                              });
  std::vector<ChunkId> kept;
  std::vector<ChunkId> spared;  // copies in the slots of `spare`
  Plan best;
  double least = std::numeric_limits<double>::infinity();
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    const std::vector<ChunkId> initial = Sorted(kept, spared);
    internal::ServedTrace served =
        internal::UseSpareSlots(problem, spare, replay.Run(kept), &spared);
    Plan plan = internal::ScheduleFetches(trace, problem, initial, served);
    const double cost = CostOf(problem, plan);
    if (cost < least) {
      least = cost;
      best = std::move(plan);
    }
    if (Sorted(served.survivors, spared) == initial) break;
    kept = std::move(served.survivors);
  }
  return best;
}

// What a step fetches and what it waits for. Where times are known that is the
// time of its fetches and the time for which it stalls. Where they are not, a
// fetch on demand counts half as much again as one ahead of use.
double PriceOf(const Trace& trace, const PlanProblem& problem,
               const Plan& plan) {
  const auto foreseen = ForeseeFetches(trace, problem, plan);
  double price = foreseen ? static_cast<double>(foreseen->stall_ns)
                          : CostOf(problem, plan);
  const auto add = [&](ChunkId chunk, bool on_demand) {
    if (!foreseen) {
      price += on_demand ? problem.fetch_cost[chunk.index()] / 2 : 0;
      return;
    }
    for (const int64_t ns : problem.fetch_ns[chunk.index()]) {
      price += static_cast<double>(ns);
    }
  };
  for (const ChunkId chunk : plan.initial) {
    if (!problem.survives_step[chunk.index()]) add(chunk, false);
  }
  for (const Move& move : plan.moves) {
    if (move.kind != MoveKind::kGather) continue;
    add(move.chunk, move.cause == RunCause::kDemand);
  }
  return price;
}

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
  std::vector<int64_t> spare(problem.slots.size());
  Plan plan = PlanWith(spare, trace, problem);
  spare = internal::SpareSlots(trace, problem);
  if (std::all_of(spare.begin(), spare.end(),
                  [](int64_t slots) { return slots == 0; })) {
    return plan;
  }
  Plan ahead = PlanWith(spare, trace, problem);
  const bool better =
      PriceOf(trace, problem, ahead) < PriceOf(trace, problem, plan);
  return better ? ahead : plan;
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
