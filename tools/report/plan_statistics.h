// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_PLAN_STATISTICS_H_
#define CASTOR_TOOLS_REPORT_PLAN_STATISTICS_H_

// What a recorded plan says of its slots: what fetches cost with as many as
// there are, and what one more or one less would change. Pure function,
// thread-safe.

#include <cstdint>
#include <optional>
#include <vector>

#include "offload/record/record_reader.h"
#include "placement/run_event.h"

namespace castor {

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

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_PLAN_STATISTICS_H_
