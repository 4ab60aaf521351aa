// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_EXACT_EXACT_POLICY_H_
#define CASTOR_PLACEMENT_EXACT_EXACT_POLICY_H_

// The `planned` policy: keep the copies that make the step's fetches cheapest,
// and prove it. Homes are fixed, slots have one size, and a fetch has a fixed
// cost. One pass over the trace is then an interval problem
// (placement/exact/interval_flow.h), and the plan is the best there is, for any
// number of slots at any moment. Classes of slots do not touch one another.
// Copies of frozen chunks, kept from one step to the next, close the trace to a
// circle: then the plan comes with a bound and is most often proved best as
// well. What is fetched when follows: on demand, and then moved ahead into the
// time in which its slot lies idle. No slots are spared for that, as the `auto`
// policy does, so a plan with a proof may stall for longer.
//
// Where slots may hold copies of shards instead (PlanProblem::shard_cost), how
// many do, and what is kept in either kind, is searched together
// (placement/exact/joint_flow.h), and none do where that saves nothing. Then
// too the plan comes with a bound, of all plans with any number of such slots
// that gather in the order of uses.
//
// The certificate speaks of what fetches cost, not of stalls or step time.
// Decisions depend on positions in the trace, never on a clock, so all ranks
// make the same ones. Pure functions, thread-safe. Part of the step planner
// (step_planner.h).

#include <vector>

#include "chunk/base/status.h"
#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {

// Costs are in the unit of PlanProblem::fetch_cost, of one step when every step
// before it was the same.
struct ClassCertificate {
  double cost = 0;         // of the plan's fetches
  double lower_bound = 0;  // no plan costs less
  // Proved best. Then the two above differ by no more than rounding hides.
  bool optimal = false;
  // Of the class's slots, those that hold copies of shards, and of how many.
  int64_t shard_slots = 0;
  int64_t shard_places = 0;
  // By moment: what one more slot there saves at most, and what one less costs
  // at least. Empty where slots may hold shards and no one price tells.
  std::vector<double> slot_price;
};

struct PlanCertificate {
  double cost = 0;  // of all classes
  double lower_bound = 0;
  bool optimal = false;  // in every class
  std::vector<ClassCertificate> classes;

  // By what share of the bound the plan may be dearer than the cheapest;
  // infinite where nothing but 0 is known of that.
  double gap() const {
    return cost > lower_bound ? (cost - lower_bound) / lower_bound : 0;
  }
};

struct ExactPlan {
  Plan plan;
  PlanCertificate certificate;
};

// A plan for one steady step, never dearer than PlanNextUse's. Fails as that
// does, and with InvalidArgument for a fetch cost that is not a positive
// number, or a shard's that is not a part of it. Costs are reckoned with as
// whole numbers of a unit, a power of two: without error where all of them are
// multiples of one and not too far apart (1, 2, 3 and 0.25); otherwise rounded
// to at least 20 bits for traces of up to 10,000 uses, to 12 where slots may
// hold shards, and the bound lowered by what rounding can hide.
Result<ExactPlan> PlanExact(const Trace& trace, const PlanProblem& problem);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_EXACT_EXACT_POLICY_H_
