// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/planner/plan_record.h"

#include <cstdint>

namespace castor {

RunPlanInfo RunPlanOf(const PlanCertificate& certificate,
                      const PlanProblem& problem,
                      std::span<const Bytes> slot_bytes, size_t moments) {
  RunPlanInfo info;
  info.in_seconds = problem.cost_unit == FetchCostUnit::kSeconds;
  info.moments = static_cast<int32_t>(moments);
  for (size_t k = 0; k < certificate.classes.size(); ++k) {
    const ClassCertificate& proof = certificate.classes[k];
    RunPlanClass& slots = info.classes.emplace_back();
    slots.slot_bytes = slot_bytes[k].count();
    slots.slots = problem.slots[k];
    slots.shard_slots = proof.shard_slots;
    slots.shards = proof.shard_places;
    slots.cost = proof.cost;
    slots.lower_bound = proof.lower_bound;
    slots.optimal = proof.optimal;
    slots.priced = !proof.slot_price.empty() || moments == 0;
    double before = 0;
    for (size_t m = 0; m < proof.slot_price.size(); ++m) {
      if (proof.slot_price[m] == before) continue;
      before = proof.slot_price[m];
      slots.prices.push_back({static_cast<int32_t>(m), before});
    }
  }
  return info;
}

}  // namespace castor
