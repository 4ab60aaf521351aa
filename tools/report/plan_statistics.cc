// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/plan_statistics.h"

#include <algorithm>
#include <cstddef>

namespace castor {
namespace {

SlotWorth WorthOf(const RunPlanClass& planned, int32_t moments) {
  SlotWorth worth;
  worth.slot_bytes = planned.slot_bytes;
  worth.slots = planned.slots;
  worth.shard_slots = planned.shard_slots;
  worth.shards = planned.shards;
  worth.cost = planned.cost;
  worth.lower_bound = planned.lower_bound;
  worth.optimal = planned.optimal;
  if (!planned.priced) return worth;
  double sum = 0;
  double dearest = 0;
  for (size_t i = 0; i < planned.prices.size(); ++i) {
    const RunSlotPrice& from = planned.prices[i];
    const int32_t end =
        i + 1 < planned.prices.size() ? planned.prices[i + 1].moment : moments;
    sum += from.price * static_cast<double>(end - from.moment);
    if (from.price > dearest) {
      dearest = from.price;
      worth.dearest_first = from.moment;
      worth.dearest_last = end - 1;
    }
  }
  // What is proved best differs from its bound by rounding alone.
  const double gap =
      planned.optimal ? 0 : std::max(0.0, planned.cost - planned.lower_bound);
  worth.one_more_saves = std::min(planned.cost, sum + gap);
  worth.one_less_costs = std::max(0.0, sum - gap);
  return worth;
}

}  // namespace

PlanStatistics StatisticsOfPlan(const RunPlanInfo& plan) {
  PlanStatistics statistics;
  statistics.step = plan.step;
  statistics.in_seconds = plan.in_seconds;
  statistics.moments = plan.moments;
  for (const RunPlanClass& planned : plan.classes) {
    statistics.slots.push_back(WorthOf(planned, plan.moments));
  }
  return statistics;
}

std::optional<PlanStatistics> ComputePlanStatistics(const RunRecord& record) {
  if (record.plans.empty()) return std::nullopt;
  return StatisticsOfPlan(record.plans.front());
}

}  // namespace castor
