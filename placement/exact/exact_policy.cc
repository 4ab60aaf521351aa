// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/exact_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "placement/exact/interval_flow.h"
#include "placement/exact/interval_problem.h"
#include "placement/exact/joint_flow.h"
#include "placement/exact/joint_problem.h"
#include "placement/exact/shard_copies.h"
#include "placement/exact/whole_costs.h"
#include "placement/policy/fetch_schedule.h"
#include "placement/policy/next_use_policy.h"
#include "placement/policy/plan_cost.h"
#include "placement/policy/slot_replay.h"
#include "placement/policy/trace_pins.h"

namespace castor {
namespace {

// The moment at which a chunk that nobody uses begins to be used: it costs a
// fetch, unless the copy was kept since the use before.
struct Need {
  ChunkId chunk;
  int32_t moment = 0;
};

// What is to be decided for one class. Gains of gaps are still missing.
struct ClassGaps {
  std::vector<Need> needs;        // in order
  std::vector<size_t> need_of;    // by gap, which it spares
  std::vector<int64_t> capacity;  // by moment
  std::vector<JointGap> gaps;
};

// The smaller numbers of bits leave room for prices between costs.
constexpr int kRoomBits = 8;

Status CheckCosts(const PlanProblem& problem) {
  for (size_t c = 0; c < problem.fetch_cost.size(); ++c) {
    const double cost = problem.fetch_cost[c];
    if (problem.param_class[c] != kNoSlotClass &&
        (!(cost > 0) || !std::isfinite(cost))) {
      return InvalidArgument(fmt::format(
          "a fetch of chunk {} costs {}; give a positive number", c, cost));
    }
    const double shard = problem.ShardCost(ChunkId(static_cast<int32_t>(c)));
    if (!(shard >= 0 && shard <= cost)) {
      return InvalidArgument(fmt::format(
          "of a fetch of chunk {}, which costs {}, its shard costs {}; give a "
          "number from 0 to that",
          c, cost, shard));
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
      classes[k].capacity.push_back(problem.slots[k] -
                                    pinned.at(static_cast<int32_t>(k), i) -
                                    problem.TakenAfter(k, i));
    }
  }
  struct Seen {
    int pins = 0;
    size_t first_need = 0;
    int32_t first_use = -1;
    int32_t first_gap = -1;
    int32_t use = -1;  // the use before, its end, and the gap that it ended
    int32_t end = -1;
    int32_t gap = -1;
  };
  std::vector<Seen> seen(problem.param_class.size());
  // From the use before, or `end`, to the need at `to`; its number.
  const auto add = [&](ClassGaps& of_class, const Seen& from, int32_t end,
                       int32_t to, size_t need) {
    of_class.gaps.push_back({end, from.use, to, 0, 0, from.gap});
    of_class.need_of.push_back(need);
    return static_cast<int32_t>(of_class.gaps.size()) - 1;
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
        of.gap = add(gaps, of, of.end, moment, gaps.needs.size());
        if (of.first_gap < 0) of.first_gap = of.gap;
      }
      of.use = moment;
      gaps.needs.push_back({trace[i].chunk, moment});
    } else if (trace[i].kind == AccessKind::kUseEnd && --of.pins == 0) {
      of.end = moment;
    }
  }
  for (size_t c = 0; c < seen.size(); ++c) {
    if (seen[c].first_use < 0 || !problem.survives_step[c]) continue;
    ClassGaps& of_class = classes[internal::Index(problem.param_class[c])];
    const int32_t gap =
        add(of_class, seen[c],
            seen[c].pins > 0 ? static_cast<int32_t>(trace.size()) : seen[c].end,
            seen[c].first_use, seen[c].first_need);
    const int32_t first = seen[c].first_gap < 0 ? gap : seen[c].first_gap;
    of_class.gaps[static_cast<size_t>(first)].before = gap;
  }
  return classes;
}

class Planner {
 public:
  Planner(const Trace& trace, const PlanProblem& problem)
      : trace_(trace),
        problem_(problem),
        kept_for_(trace.size(), false),
        splits_(problem.slots.size(), 0) {}

  // Decides what is kept in the next class, and proves it.
  Status Decide(ClassGaps of_class) {
    const size_t slot_class = certificate_.classes.size();
    const int64_t parts = problem_.ShardsPerSlot(slot_class);
    std::vector<double> costs;
    bool shards = false;
    for (const Need& need : of_class.needs) {
      costs.push_back(problem_.fetch_cost[need.chunk.index()]);
      shards |= problem_.ShardCost(need.chunk) > 0;
    }
    // As many bits for gains as their sum allows, and of these as many below
    // the smallest difference as breaking ties asks for.
    const int count_bits =
        static_cast<int>(std::bit_width(of_class.needs.size() + 1));
    const int ties_bits = static_cast<int>(std::bit_width(
        std::min<uint64_t>(of_class.needs.size(),
                           static_cast<uint64_t>(kMostTogether)) +
        1));
    const int shift = ties_bits + 10;
    const int bits = std::max(57 - count_bits - shift, 1);
    if (parts == 0 || !shards) {
      return DecideGathered(of_class, costs, bits, shift);
    }
    return DecideBoth(of_class, costs, bits, shift, parts);
  }

  // The plan that does so. REQUIRES: every class was decided.
  Result<ExactPlan> Finish() {
    std::sort(initial_.begin(), initial_.end());
    PlanProblem gathered = problem_;
    for (size_t k = 0; k < splits_.size(); ++k) gathered.slots[k] -= splits_[k];
    internal::SlotReplay replay(
        trace_, gathered, [&](ChunkId, int64_t next_use) {
          const bool kept =
              next_use != internal::kNeverUsed &&
              kept_for_[static_cast<size_t>(next_use) % trace_.size()];
          return kept ? std::numeric_limits<double>::infinity() : 0;
        });
    ExactPlan exact;
    exact.plan = internal::ScheduleFetches(trace_, problem_, initial_,
                                           replay.Run(initial_));
    if (std::any_of(splits_.begin(), splits_.end(),
                    [](int64_t split) { return split > 0; })) {
      exact.plan.shard_slots = splits_;
      CASTOR_RETURN_IF_ERROR(internal::KeepShards(problem_, &exact.plan));
    }
    exact.certificate = std::move(certificate_);
    Account(&exact);
    for (size_t k = 0; k < splits_.size(); ++k) {
      // Copies that are there when the step begins take their places at once.
      ClassCertificate& proof = exact.certificate.classes[k];
      proof.optimal &= splits_[k] == 0 || proof.cost <= foreseen_[k];
    }
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
      proof.shard_slots = proof.shard_places = 0;
    }
    return next_use.certificate.cost < exact.certificate.cost ? next_use
                                                              : exact;
  }

 private:
  // Of gathered copies alone.
  Status DecideGathered(const ClassGaps& of_class,
                        const std::vector<double>& costs, int bits, int shift) {
    const internal::WholeCosts whole = internal::ToWholeCosts(costs, bits);
    IntervalProblem keeping{of_class.capacity, {}};
    for (size_t j = 0; j < of_class.gaps.size(); ++j) {
      const JointGap& gap = of_class.gaps[j];
      keeping.intervals.push_back({gap.idle_since, gap.need,
                                   whole.whole[of_class.need_of[j]] << shift});
    }
    CASTOR_RETURN_IF_ERROR(CheckIntervalProblem(keeping));
    const IntervalSolution solution = SolveIntervals(keeping);
    CASTOR_RETURN_IF_ERROR(VerifyIntervalSolution(keeping, solution));
    const int64_t rounding =
        whole.exact ? 0 : static_cast<int64_t>(of_class.needs.size());
    Adopt(of_class, solution.kept, {});
    Prove(whole, shift, rounding, solution.bound, solution.optimal(),
          solution.price);
    return OkStatus();
  }

  // Of gathered copies and of shards', in slots of one class.
  Status DecideBoth(const ClassGaps& of_class, std::vector<double> costs,
                    int bits, int shift, int64_t parts) {
    const size_t needs = of_class.needs.size();
    std::vector<size_t> shard_of(needs, 0);  // its cost's place; 0: none
    for (size_t n = 0; n < needs; ++n) {
      const double shard = problem_.ShardCost(of_class.needs[n].chunk);
      if (shard <= 0) continue;
      shard_of[n] = costs.size();
      costs.push_back(shard);
    }
    internal::WholeCosts whole =
        internal::ToWholeCosts(costs, std::max(bits - kRoomBits, 1));
    const int64_t largest =
        *std::max_element(whole.whole.begin(), whole.whole.end());
    const int room = std::max(
        bits - static_cast<int>(std::bit_width(static_cast<uint64_t>(largest))),
        0);
    JointProblem joint;
    joint.capacity = of_class.capacity;
    joint.parts = parts;
    joint.gaps = of_class.gaps;
    joint.unit = int64_t{1} << shift;
    for (size_t j = 0; j < joint.gaps.size(); ++j) {
      const size_t need = of_class.need_of[j];
      JointGap& gap = joint.gaps[j];
      gap.gain = whole.whole[need] << (room + shift);
      if (shard_of[need] == 0) continue;
      gap.shard_gain =
          std::min(gap.gain, whole.whole[shard_of[need]] << (room + shift));
    }
    CASTOR_RETURN_IF_ERROR(CheckJointProblem(joint));
    const JointSolution solution = SolveJoint(joint);
    CASTOR_RETURN_IF_ERROR(VerifyJointSolution(joint, solution));
    splits_[certificate_.classes.size()] = solution.split;
    whole.whole.resize(needs);
    Adopt(of_class, solution.kept, solution.shard_kept);
    Prove(whole, room + shift,
          whole.exact ? 0 : 2 * static_cast<int64_t>(needs), solution.bound,
          solution.optimal(),
          solution.proves < 0
              ? std::vector<int64_t>()
              : solution.proof[static_cast<size_t>(solution.proves)].slot);
    ClassCertificate& proof = certificate_.classes.back();
    proof.shard_slots = solution.split;
    proof.shard_places = solution.split * parts;
    return OkStatus();
  }

  // What is kept, and what a step then costs, rounding aside.
  void Adopt(const ClassGaps& of_class, const std::vector<bool>& kept,
             const std::vector<bool>& shard_kept) {
    double cost = 0;
    for (const Need& need : of_class.needs) {
      cost += problem_.fetch_cost[need.chunk.index()] * (1 + 1e-9);
    }
    for (size_t j = 0; j < of_class.gaps.size(); ++j) {
      const JointGap& gap = of_class.gaps[j];
      const Need& need = of_class.needs[of_class.need_of[j]];
      if (!shard_kept.empty() && shard_kept[j]) {
        cost -= problem_.ShardCost(need.chunk);
      }
      if (!kept[j]) continue;
      cost -= problem_.fetch_cost[need.chunk.index()];
      kept_for_[static_cast<size_t>(need.moment)] = true;
      if (gap.idle_since >= gap.need) initial_.push_back(need.chunk);
    }
    foreseen_.push_back(cost);
  }

  // `whole` are the costs of all needs; gains are these, shifted.
  void Prove(const internal::WholeCosts& whole, int shift, int64_t rounding,
             int64_t bound, bool optimal, const std::vector<int64_t>& prices) {
    ClassCertificate& proof = certificate_.classes.emplace_back();
    int64_t least = -(bound >> shift) - rounding;
    for (int64_t cost : whole.whole) least += cost;
    proof.lower_bound =
        std::max<double>(0, static_cast<double>(least) * whole.unit);
    proof.optimal = optimal;
    for (int64_t price : prices) {
      proof.slot_price.push_back(
          std::ldexp(static_cast<double>(price) * whole.unit, -shift));
    }
  }

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
  std::vector<bool> kept_for_;    // by moment of a use: the copy is kept for it
  std::vector<int64_t> splits_;   // by class: slots that hold shards
  std::vector<double> foreseen_;  // by class: what the plan should cost
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
