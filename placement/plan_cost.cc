// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/plan_cost.h"

#include <cstddef>

namespace castor {

std::vector<double> StepFetchCosts(const PlanProblem& problem,
                                   const Plan& plan) {
  std::vector<double> costs(problem.slots.size(), 0);
  std::vector<bool> resident(problem.param_class.size(), false);
  const auto pay = [&](ChunkId chunk) {
    const int32_t slot_class = problem.param_class[chunk.index()];
    costs[static_cast<size_t>(slot_class)] += problem.fetch_cost[chunk.index()];
  };
  for (ChunkId chunk : plan.initial) resident[chunk.index()] = true;
  for (const Move& move : plan.moves) {
    resident[move.chunk.index()] = move.kind == MoveKind::kGather;
    if (move.kind == MoveKind::kGather) pay(move.chunk);
  }
  for (ChunkId chunk : plan.initial) {
    if (!resident[chunk.index()] || !problem.survives_step[chunk.index()]) {
      pay(chunk);
    }
  }
  return costs;
}

}  // namespace castor
