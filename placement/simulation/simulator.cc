// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/simulation/simulator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "placement/simulation/simulated_rank.h"
#include "placement/timeline/meetings.h"
#include "placement/trace/grads_in_place.h"

namespace castor {
namespace {

// What a rank has counted up to a moment of the simulation.
struct Sums {
  internal::GatheredCopies::Counts counts;
  int64_t reduce_scatters = 0;
};

// And up to when the trainer's lane gets somewhere.
struct LaneSums {
  int64_t at_ns = 0;
  std::array<int64_t, kSimResources> busy_ns{};
  std::array<SimulatedStall, kRunCauses> stalls;
};

SimulatedStep Between(const Sums& a, const Sums& b, const LaneSums& from,
                      const LaneSums& to, const StepTraffic& traffic) {
  SimulatedStep step;
  step.traffic = traffic;
  step.begin_ns = from.at_ns;
  step.end_ns = to.at_ns;
  step.prefetched_fetches =
      b.counts.prefetched_fetches - a.counts.prefetched_fetches;
  step.prefetched_gathers = b.counts.prefetched - a.counts.prefetched;
  step.cancelled_gathers = b.counts.cancelled - a.counts.cancelled;
  step.releases = b.counts.releases - a.counts.releases;
  step.divergences = b.counts.divergences - a.counts.divergences;
  step.reduce_scatters = b.reduce_scatters - a.reduce_scatters;
  for (size_t r = 0; r < step.busy_ns.size(); ++r) {
    step.busy_ns[r] = to.busy_ns[r] - from.busy_ns[r];
  }
  for (size_t c = 0; c < step.stalls.size(); ++c) {
    step.stalls[c] = {to.stalls[c].count - from.stalls[c].count,
                      to.stalls[c].ns - from.stalls[c].ns};
  }
  return step;
}

Result<SimulationResult> MakeSteps(std::span<const StepTrace* const> steps,
                                   const SimulatedEngine& engine,
                                   const Plan* plan,
                                   internal::SimulatedRank& rank) {
  if (plan != nullptr) rank.Know(*steps.front(), *plan);
  std::vector<Sums> sums(1);
  std::vector<LaneSums> lane(1);
  lane.reserve(steps.size() + 1);
  std::vector<StepTraffic> traffic(steps.size());
  SimulationResult result;
  for (size_t i = 0; i < steps.size(); ++i) {
    CASTOR_RETURN_IF_ERROR(rank.MakeStep(*steps[i], [&rank, &lane] {
      lane.push_back({rank.now_ns(), rank.busy_ns(), rank.stalls()});
    }));
    sums.push_back({rank.counts(), rank.reduce_scatters()});
    result.by_chunk = rank.TakeTraffic(&traffic[i]);
  }
  rank.Finish();
  for (size_t i = 0; i < steps.size(); ++i) {
    result.steps.push_back(
        Between(sums[i], sums[i + 1], lane[i], lane[i + 1], traffic[i]));
  }
  result.peak = engine.settled;
  result.peak[TierIndex(Tier::kDevice)] += rank.gathered_peak();
  result.end_ns = rank.now_ns();
  return result;
}

// What one rank does, as far as others are where `meetings` says.
Result<SimulationResult> SimulateRank(std::span<const StepTrace* const> steps,
                                      const SimulatedEngine& engine,
                                      const TierModel& machine,
                                      const SimulationOptions& options,
                                      internal::Meetings* meetings) {
  meetings->own_ns.clear();
  internal::SimulatedRank rank(&engine, &machine, options.trainer,
                               options.device_memory, meetings);
  return MakeSteps(steps, engine, options.plan, rank);
}

// The one that comes first, as far as it and the last one meet.
Result<SimulationResult> SimulateTwoRanks(
    std::span<const StepTrace* const> steps, const SimulatedEngine& engine,
    const TierModel& machine, const SimulationOptions& options) {
  SimulationResult result;
  CASTOR_RETURN_IF_ERROR(
      internal::SettleMeetings([&](internal::Meetings* meetings) -> Status {
        CASTOR_ASSIGN_OR_RETURN(
            result, SimulateRank(steps, engine, machine, options, meetings));
        return OkStatus();
      }));
  return result;
}

bool WritesOver(const SimulatedEngine& engine) {
  const std::vector<int32_t>& classes = engine.problem.grad_class;
  return std::find(classes.begin(), classes.end(), kNoSlotClass) !=
         classes.end();
}

Status CheckSteps(std::span<const StepTrace* const> steps,
                  const SimulatedEngine& engine) {
  CASTOR_CHECK(!steps.empty());
  const StepTrace* checked = nullptr;
  for (const StepTrace* const step : steps) {
    if (step == checked) continue;
    checked = step;
    CASTOR_RETURN_IF_ERROR(ValidateStep(*step, engine.chunks.size()));
    if (step->accesses.empty()) {
      return InvalidArgument(
          "the trace has no access: there is no step to make");
    }
    if (WritesOver(engine) && !GradsInPlace(step->accesses)) {
      return InvalidArgument(
          "gradients are written over parameters, and the trace has some that "
          "are not: it is of another gradient mode (WithGradsInPlace makes it "
          "one of this)");
    }
  }
  return OkStatus();
}

}  // namespace

Result<SimulationResult> SimulateSteps(std::span<const StepTrace* const> steps,
                                       const SimulatedEngine& engine,
                                       const TierModel& machine,
                                       const SimulationOptions& options) {
  CASTOR_RETURN_IF_ERROR(CheckSteps(steps, engine));
  // Where every collective takes time, who came last does not matter.
  if (engine.world > 1 && !(machine.all_gather && machine.reduce_scatter)) {
    return SimulateTwoRanks(steps, engine, machine, options);
  }
  internal::Meetings meetings;
  return SimulateRank(steps, engine, machine, options, &meetings);
}

Result<SimulationResult> CountSteps(std::span<const StepTrace* const> steps,
                                    const SimulatedEngine& engine,
                                    const Plan* plan) {
  CASTOR_RETURN_IF_ERROR(CheckSteps(steps, engine));
  internal::Meetings meetings;
  internal::SimulatedRank rank(&engine, &meetings);
  return MakeSteps(steps, engine, plan, rank);
}

Result<SimulationResult> Simulate(const StepTrace& trace,
                                  const SimulatedEngine& engine,
                                  const TierModel& machine,
                                  const SimulationOptions& options) {
  CASTOR_CHECK_GE(options.steps, 1);
  const std::vector<const StepTrace*> steps(static_cast<size_t>(options.steps),
                                            &trace);
  return SimulateSteps(steps, engine, machine, options);
}

TierModel ShareOfMachine(const TierModel& machine, int ranks) {
  CASTOR_CHECK_GE(ranks, 1);
  TierModel share = machine;
  const auto divide = [ranks](auto& speed) {
    if (!speed) return;
    speed->bytes_per_second =
        std::max<int64_t>(speed->bytes_per_second / ranks, 1);
  };
  divide(share.nvme_read);
  divide(share.nvme_write);
  divide(share.nvme_mixed);
  divide(share.memory);
  divide(share.optimizer);
  return share;
}

}  // namespace castor
