// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "placement/fetch_schedule.h"
#include "placement/interval_flow.h"
#include "placement/interval_problem.h"
#include "placement/next_use_policy.h"
#include "placement/plan_cost.h"
#include "placement/slot_replay.h"
#include "placement/trace_pins.h"
#include "placement/whole_costs.h"

namespace castor {
namespace {

// The moment at which a chunk that nobody uses begins to be used: it costs a
// fetch, unless the copy was kept since the use before.
struct Need {
  ChunkId chunk;
  int32_t moment = 0;
};

// What is to be decided for one class.
struct ClassGaps {
  std::vector<Need> needs;      // in order
  std::vector<size_t> need_of;  // by interval, which it spares
  IntervalProblem keeping;      // its gains still missing
  bool wraps = false;
};

Status CheckCosts(const PlanProblem& problem) {
  for (size_t c = 0; c < problem.fetch_cost.size(); ++c) {
    const double cost = problem.fetch_cost[c];
    if (problem.param_class[c] != kNoSlotClass &&
        (!(cost > 0) || !std::isfinite(cost))) {
      return InvalidArgument(fmt::format(
          "a fetch of chunk {} costs {}; give a positive number", c, cost));
    }
  }
  return OkStatus();
}

// Gaps between the uses of each chunk. A copy that is kept has a slot from the
// access that ends the use before, whose own slot that was, up to the next.
std::vector<ClassGaps> FindGaps(const Trace& trace, const PlanProblem& problem,
                                const internal::PinnedCounts& pinned) {
  std::vector<ClassGaps> classes(problem.slots.size());
  for (size_t k = 0; k < classes.size(); ++k) {
    for (size_t i = 0; i < trace.size(); ++i) {
      classes[k].keeping.capacity.push_back(
          problem.slots[k] - pinned.at(static_cast<int32_t>(k), i) -
          problem.TakenAfter(k, i));
    }
  }
  struct Seen {
    int pins = 0;
    size_t first_need = 0;
    int32_t first_use = -1;
    int32_t end = -1;  // of the use before
  };
  std::vector<Seen> seen(problem.param_class.size());
  const auto add = [&](ClassGaps& gaps, int32_t from, int32_t to, size_t need) {
    gaps.keeping.intervals.push_back({from, to, 0});
    gaps.need_of.push_back(need);
  };
  for (size_t i = 0; i < trace.size(); ++i) {
    const size_t chunk = trace[i].chunk.index();
    const auto moment = static_cast<int32_t>(i);
    if (problem.param_class[chunk] == kNoSlotClass) continue;
    ClassGaps& gaps = classes[internal::Index(problem.param_class[chunk])];
    Seen& of = seen[chunk];
    if (trace[i].kind == AccessKind::kUse && of.pins++ == 0) {
      if (of.first_use < 0) {
        of.first_use = moment;
        of.first_need = gaps.needs.size();
      } else {
        add(gaps, of.end, moment, gaps.needs.size());
      }
      gaps.needs.push_back({trace[i].chunk, moment});
    } else if (trace[i].kind == AccessKind::kUseEnd && --of.pins == 0) {
      of.end = moment;
    }
  }
  for (size_t c = 0; c < seen.size(); ++c) {
    if (seen[c].first_use < 0 || !problem.survives_step[c]) continue;
    ClassGaps& gaps = classes[internal::Index(problem.param_class[c])];
    add(gaps,
        seen[c].pins > 0 ? static_cast<int32_t>(trace.size()) : seen[c].end,
        seen[c].first_use, seen[c].first_need);
  }
  return classes;
}

class Planner {
 public:
  Planner(const Trace& trace, const PlanProblem& problem)
      : trace_(trace), problem_(problem), kept_for_(trace.size(), false) {}

  // Decides what is kept in one class, and proves it.
  Status Decide(ClassGaps gaps) {
    // As many bits for gains as their sum allows, and of these as many below
    // the smallest difference as breaking ties asks for.
    const int count_bits =
        static_cast<int>(std::bit_width(gaps.needs.size() + 1));
    const int shift = count_bits + 10;
    const int bits = std::max(57 - count_bits - shift, 1);
    std::vector<double> costs;
    for (const Need& need : gaps.needs) {
      costs.push_back(problem_.fetch_cost[need.chunk.index()]);
    }
    const internal::WholeCosts whole = internal::ToWholeCosts(costs, bits);
    for (size_t j = 0; j < gaps.need_of.size(); ++j) {
      gaps.keeping.intervals[j].gain = whole.whole[gaps.need_of[j]] << shift;
    }
    CASTOR_RETURN_IF_ERROR(CheckIntervalProblem(gaps.keeping));
    const IntervalSolution solution = SolveIntervals(gaps.keeping);
    CASTOR_RETURN_IF_ERROR(VerifyIntervalSolution(gaps.keeping, solution));

    for (size_t j = 0; j < gaps.need_of.size(); ++j) {
      if (!solution.kept[j]) continue;
      const Need& need = gaps.needs[gaps.need_of[j]];
      kept_for_[static_cast<size_t>(need.moment)] = true;
      if (gaps.keeping.intervals[j].wraps()) initial_.push_back(need.chunk);
    }
    ClassCertificate& proof = certificate_.classes.emplace_back();
    int64_t least = -(solution.bound >> shift);
    for (int64_t cost : whole.whole) least += cost;
    if (!whole.exact) least -= static_cast<int64_t>(gaps.needs.size());
    proof.lower_bound =
        std::max<double>(0, static_cast<double>(least) * whole.unit);
    proof.optimal = solution.optimal();
    for (int64_t price : solution.price) {
      proof.slot_price.push_back(
          std::ldexp(static_cast<double>(price) * whole.unit, -shift));
    }
    return OkStatus();
  }

  // The plan that does so. REQUIRES: every class was decided.
  Result<ExactPlan> Finish() {
    std::sort(initial_.begin(), initial_.end());
    internal::SlotReplay replay(
        trace_, problem_, [&](ChunkId, int64_t, int64_t next_use) {
          const bool kept =
              next_use != internal::kNeverUsed &&
              kept_for_[static_cast<size_t>(next_use) % trace_.size()];
          return kept ? 0 : std::numeric_limits<double>::infinity();
        });
    ExactPlan exact;
    exact.plan = internal::ScheduleFetches(
        trace_.size(), problem_.prefetch_depth, initial_, replay.Run(initial_));
    exact.certificate = std::move(certificate_);
    Account(&exact);
    exact.certificate.optimal = std::all_of(
        exact.certificate.classes.begin(), exact.certificate.classes.end(),
        [](const ClassCertificate& c) { return c.optimal; });
    if (exact.certificate.optimal) return exact;

    // What is not proved best might be beaten.
    ExactPlan next_use;
    CASTOR_ASSIGN_OR_RETURN(next_use.plan, PlanNextUse(trace_, problem_));
    next_use.certificate = exact.certificate;
    Account(&next_use);
    for (size_t k = 0; k < next_use.certificate.classes.size(); ++k) {
      ClassCertificate& proof = next_use.certificate.classes[k];
      proof.optimal &= proof.cost <= exact.certificate.classes[k].cost;
    }
    return next_use.certificate.cost < exact.certificate.cost ? next_use
                                                              : exact;
  }

 private:
  // What the plan costs goes into its certificate.
  void Account(ExactPlan* exact) const {
    PlanCertificate& certificate = exact->certificate;
    const std::vector<double> costs = StepFetchCosts(problem_, exact->plan);
    certificate.cost = certificate.lower_bound = 0;
    for (size_t k = 0; k < costs.size(); ++k) {
      certificate.classes[k].cost = costs[k];
      certificate.cost += costs[k];
      certificate.lower_bound += certificate.classes[k].lower_bound;
    }
  }

  const Trace& trace_;
  const PlanProblem& problem_;
  std::vector<bool> kept_for_;  // by moment of a use: the copy is kept for it
  std::vector<ChunkId> initial_;
  PlanCertificate certificate_;
};

}  // namespace

Result<ExactPlan> PlanExact(const Trace& trace, const PlanProblem& problem) {
  CASTOR_RETURN_IF_ERROR(internal::CheckTrace(trace, problem));
  CASTOR_RETURN_IF_ERROR(CheckCosts(problem));
  const internal::PinnedCounts pinned(trace, problem);
  CASTOR_RETURN_IF_ERROR(internal::CheckFits(trace, problem, pinned));
  Planner planner(trace, problem);
  for (ClassGaps& gaps : FindGaps(trace, problem, pinned)) {
    CASTOR_RETURN_IF_ERROR(planner.Decide(std::move(gaps)));
  }
  return planner.Finish();
}

}  // namespace castor
